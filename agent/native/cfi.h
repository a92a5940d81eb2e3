/* SPDX-License-Identifier: Apache-2.0 */
/* From a frame of C to the one that called it, by the call frame information that compilers leave in an ELF file
 * (.eh_frame, found by .eh_frame_hdr; the System V ABI of x86-64, DWARF 4 section 6.4). Pure but for the readers.
 * File and memory are the program's and may hold anything: nothing is read beyond what a limit of ours holds, and
 * what is not understood ends the walk, and is said. */
#pragma once

#include "agent/native/cfi_bytes.h"
#include "agent/postmortem/elf_symbols.h"

enum {
    CFI_RBX = 3, /* registers, by their numbers in DWARF */
    CFI_RBP = 6,
    CFI_RSP = 7,
    CFI_RIP = 16,
    CFI_REGISTERS = 17,
    CFI_ENTRY_MAX_BYTES = 1 << 16, /* of a longer one no frame is known */
    CFI_SEGMENTS_MAX = 32
};

/* The registers in a frame. */
struct cfi_frame {
    uint64_t values[CFI_REGISTERS];
    uint32_t known; /* 1 << number; others' values are not known */
    bool
        is_returned; /* rip is where a call returns to, so it is one behind the caller's place */
};

/* Of a thread. */
struct cfi_memory {
    void *context;
    /* The 8 bytes at the address; false when they are not there. */
    bool (*read)(void *context, uint64_t address, uint64_t *word);
};

/* An ELF file with the places of its tables. */
struct cfi_file {
    struct elf_source source; /* kept */
    int segment_count;
    struct cfi_segment {
        uint64_t offset, address, size;
    } segments[CFI_SEGMENTS_MAX];
    uint64_t header,
        header_size; /* of .eh_frame_hdr: its address; size 0: there is none */
};

enum cfi_result {
    CFI_CALLER,      /* the frame is the caller's now */
    CFI_OUTERMOST,   /* nobody called this one */
    CFI_NO_ENTRY,    /* the file tells nothing of this place */
    CFI_UNREADABLE,  /* what it tells is not understood */
    CFI_NO_REGISTER, /* it takes a register that is not known */
    CFI_NO_MEMORY    /* it takes memory that is not there */
};

/* Where a step works; overwritten by it. On the heap. */
struct cfi_room {
    uint8_t common[CFI_ENTRY_MAX_BYTES], own[CFI_ENTRY_MAX_BYTES];
};

/* 0, or -ENOEXEC when this is no such file. */
int cfi_file_open(struct cfi_file *out, const struct elf_source *source);
/* Where the file has this byte; 0: in no segment. */
uint64_t cfi_file_address(const struct cfi_file *file, uint64_t offset);
/* `bias`: what is added to the file's addresses in the memory of the process. After anything but CFI_CALLER the frame
 * is as it was. */
enum cfi_result cfi_step(struct cfi_frame *frame, const struct cfi_file *file,
                         uint64_t bias, const struct cfi_memory *memory,
                         struct cfi_room *room);
