/*
 * Two processes send each other a byte through pipes, in turn: `ping-pong ROUNDS`.
 *
 * All of it is wake-ups: each of them waits for the other, as UnixBench's context1 does.
 */
#include <err.h>
#include <stdlib.h>
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

int main(int argc, char **argv)
{
	int there[2], back[2], status;
	long rounds = argc == 2 ? atol(argv[1]) : 0;
	pid_t child;

	if (rounds < 1)
		errx(EXIT_FAILURE, "usage: ping-pong ROUNDS");
	if (pipe(there) || pipe(back))
		err(EXIT_FAILURE, "pipe");
	child = fork();
	if (child < 0)
		err(EXIT_FAILURE, "fork");
	for (long round = 0; round < rounds; round++) {
		if (child) {
			send_byte(there[1]);
			receive_byte(back[0]);
		} else {
			receive_byte(there[0]);
			send_byte(back[1]);
		}
	}
	if (child && (wait(&status) != child || status != 0))
		errx(EXIT_FAILURE, "the other process failed");
	return EXIT_SUCCESS;
}
