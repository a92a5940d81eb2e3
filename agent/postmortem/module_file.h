/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a module that a process has mapped, to be read as an ELF file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens the path as the process `pid` sees it (0: as we do), and only if it is the file that was
 * mapped, not a new file of the same name; the program of the process also if its file is gone. A
 * descriptor, -EPERM or -ENOEXEC. */
int module_file_open(pid_t pid, const char *path, uint64_t inode);
/* For struct elf_source; context: a pointer to the descriptor. */
bool module_file_read(void *context, uint64_t offset, void *dst, size_t length);
