/*
 * Moves the memory of a process from one NUMA node to another, as the program of this name in numactl does:
 * `migratepages PID FROM TO`.
 */
#include <err.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned long from, to;
	long left;

	if (argc != 4)
		errx(EXIT_FAILURE, "usage: migratepages PID FROM TO");
	from = 1UL << atoi(argv[2]);
	to = 1UL << atoi(argv[3]);
	left = syscall(SYS_migrate_pages, atoi(argv[1]), 8 * sizeof(from), &from, &to);
	if (left < 0)
		err(EXIT_FAILURE, "migrate_pages");
	return EXIT_SUCCESS;
}
