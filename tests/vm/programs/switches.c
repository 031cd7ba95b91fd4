/*
 * Two processes wake each other through pipes: `switches ROUNDS`. When they have ended, a line for each of them
 * has its number, how often it has blocked, and how often it had to leave its CPU, by the kernel's own counts.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void send_byte(int pipe)
{
	char byte = 0;

	if (write(pipe, &byte, 1) != 1)
		err(EXIT_FAILURE, "write");
}

static void receive_byte(int pipe)
{
	char byte;

	if (read(pipe, &byte, 1) != 1)
		err(EXIT_FAILURE, "read");
}

static pid_t player(int to, int from, long rounds, int begins)
{
	pid_t pid = fork();

	if (pid < 0)
		err(EXIT_FAILURE, "fork");
	if (pid > 0)
		return pid;
	for (long round = 0; round < rounds; round++) {
		if (begins)
			send_byte(to);
		receive_byte(from);
		if (!begins)
			send_byte(to);
	}
	exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	long rounds = argc == 2 ? atol(argv[1]) : 0;

	if (rounds < 1)
		errx(EXIT_FAILURE, "usage: switches ROUNDS");
	if (pipe(there) || pipe(back))
		err(EXIT_FAILURE, "pipe");
	player(there[1], back[0], rounds, 1);
	player(back[1], there[0], rounds, 0);
	for (int ended = 0; ended < 2; ended++) {
		struct rusage usage;
		int status;
		pid_t pid = wait4(-1, &status, 0, &usage);

		if (pid < 0 || status != 0)
			errx(EXIT_FAILURE, "a process failed");
		printf("%d %ld %ld\n", pid, usage.ru_nvcsw, usage.ru_nivcsw);
	}
	return EXIT_SUCCESS;
}
