# Builds the library of zlib, all files of this folder, without the configuring that its own makefile wants first.

CFLAGS := -DHAVE_UNISTD_H
SOURCES := $(wildcard *.c)

libz.a: $(SOURCES:.c=.o)
	ar rc $@ $^

# Prints, as rules, which headers the sources include.
headers:
	cc -M $(CFLAGS) $(SOURCES)

.PHONY: headers
