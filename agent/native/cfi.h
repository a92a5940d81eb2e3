/* SPDX-License-Identifier: Apache-2.0 */
/* From a C frame to its caller, by the call frame information that compilers write into an ELF file
 * (.eh_frame, found by .eh_frame_hdr; the System V ABI of x86-64, DWARF 4 section 6.4). Pure except
 * for the readers. File and memory belong to the program and may hold anything: every read is
 * limited, and the walk ends with a result that says so at anything that is not understood. */
#pragma once

#include "agent/native/cfi_bytes.h"
#include "agent/postmortem/elf_symbols.h"

enum {
    CFI_RBX = 3, /* registers, by their DWARF numbers */
    CFI_RBP = 6,
    CFI_RSP = 7,
    CFI_RIP = 16,
    CFI_REGISTERS = 17,
    CFI_ENTRY_MAX_BYTES = 1 << 16, /* frames of a longer entry are not found */
    CFI_SEGMENTS_MAX = 32
};

/* The registers in a frame. */
struct cfi_frame {
    uint64_t values[CFI_REGISTERS];
    uint32_t known;   /* 1 << number for each register whose value is known */
    bool is_returned; /* rip is a return address: behind the caller's call */
};

/* The memory of a thread. */
struct cfi_memory {
    void *context;
    /* Reads the 8 bytes at the address; false if they cannot be read. */
    bool (*read)(void *context, uint64_t address, uint64_t *word);
};

/* An ELF file and where its tables are. */
struct cfi_file {
    struct elf_source source; /* kept */
    int segment_count;
    struct cfi_segment {
        uint64_t offset, address, size;
    } segments[CFI_SEGMENTS_MAX];
    uint64_t header, header_size; /* address and size of .eh_frame_hdr; size 0: none */
};

enum cfi_result {
    CFI_CALLER,      /* the frame is now the caller's */
    CFI_OUTERMOST,   /* this frame has no caller */
    CFI_NO_ENTRY,    /* the file has no entry for this address */
    CFI_UNREADABLE,  /* the entry is not understood */
    CFI_NO_REGISTER, /* it needs a register that is not known */
    CFI_NO_MEMORY    /* it needs memory that cannot be read */
};

/* Buffers of one step. On the heap. */
struct cfi_room {
    uint8_t common[CFI_ENTRY_MAX_BYTES], own[CFI_ENTRY_MAX_BYTES];
};

/* 0, or -ENOEXEC if this is no such file. */
int cfi_file_open(struct cfi_file *out, const struct elf_source *source);
/* The address of this byte of the file; 0: in no segment. */
uint64_t cfi_file_address(const struct cfi_file *file, uint64_t offset);
/* `bias`: the difference between addresses in the process and in the file. The frame changes only
 * if the result is CFI_CALLER. */
enum cfi_result cfi_step(struct cfi_frame *frame, const struct cfi_file *file,
                         uint64_t bias, const struct cfi_memory *memory,
                         struct cfi_room *room);
