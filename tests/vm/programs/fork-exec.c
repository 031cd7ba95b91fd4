/*
 * Starts a program that ends at once, and waits for it, again and again: `fork-exec TIMES`.
 *
 * A new task has to be placed, twice: when it is forked, and when it is another program. The program is this one.
 */
#include <err.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long times;

	if (argc == 1)
		return EXIT_SUCCESS;
	times = atol(argv[1]);
	if (times < 1)
		errx(EXIT_FAILURE, "usage: fork-exec TIMES");
	while (times--) {
		int status;
		pid_t child = fork();

		if (child < 0)
			err(EXIT_FAILURE, "fork");
		if (child == 0) {
			execl("/proc/self/exe", argv[0], (char *)NULL);
			err(EXIT_FAILURE, "exec");
		}
		if (waitpid(child, &status, 0) != child || status != 0)
			errx(EXIT_FAILURE, "the program failed");
	}
	return EXIT_SUCCESS;
}
