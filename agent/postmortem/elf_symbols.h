/* SPDX-License-Identifier: Apache-2.0 */
/* The functions at given places of an ELF file, from .symtab, or from .dynsym if the file is
 * stripped. Reads in pieces and trusts no field: every size is checked against a limit of ours.
 * 64-bit files of this machine's byte order. Pure, except for the reader that it is given. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_source {
    void *context;
    /* Reads exactly `length` bytes from `offset` on; false when the file has fewer. */
    bool (*read)(void *context, uint64_t offset, void *dst, size_t length);
};

struct elf_place {
    uint64_t offset;  /* in: offset in the file */
    uint64_t address; /* out: address as the file counts; 0: in no segment */
    char *name;       /* out: the caller's, name_size bytes; empty: no function found */
    size_t name_size;
    uint64_t start; /* of that function */
};

/* 0, -ENOEXEC when this is no such file, -ENOMEM. On failure, results found so far stay. */
int elf_find_functions(const struct elf_source *source, struct elf_place *places,
                       int count);

/* Finds a variable by its name, of fewer than 64 bytes. *address: in the addresses of the file;
 * *base: the address of the file's first byte. 0, -ENOEXEC when this is no such file, -ENOENT,
 * -ENOMEM. */
int elf_find_variable(const struct elf_source *source, const char *name,
                      uint64_t *address, uint64_t *base);
