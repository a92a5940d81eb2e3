/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/native/cfi.h"

/* What the file tells of one function. */
struct cfi_entry {
    uint64_t start, size; /* as the file counts addresses */
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_column;
    uint8_t encoding;             /* of addresses in instructions */
    bool is_signal;               /* the frame below was interrupted, not calling */
    struct cfi_bytes common, own; /* instructions */
};

enum cfi_how {
    CFI_SAME, /* unless told otherwise */
    CFI_UNDEFINED,
    CFI_AT,            /* in memory at the frame's base + offset */
    CFI_IS,            /* the base + offset */
    CFI_IN,            /* in another register */
    CFI_AT_EXPRESSION, /* in memory there */
    CFI_IS_EXPRESSION
};

struct cfi_rule {
    enum cfi_how how;
    bool is_given;
    int64_t offset; /* or the register */
    struct cfi_bytes expression;
};

/* How to find the caller's registers. */
struct cfi_rules {
    bool base_is_expression;
    uint64_t base_register;
    int64_t base_offset;
    struct cfi_bytes base;
    struct cfi_rule registers[CFI_REGISTERS];
};

/* False: there is none for this address. *is_good false: what there is cannot be read. */
bool cfi_table_find(struct cfi_entry *out, const struct cfi_file *file,
                    uint64_t address, struct cfi_room *room, bool *is_good);
/* Those in force at `address`; false when the instructions are not understood. */
bool cfi_rules_find(struct cfi_rules *out, const struct cfi_entry *entry,
                    uint64_t address);
/* Of a DWARF expression that begins with `first` on its stack, when has_first. CFI_CALLER when there is one. */
enum cfi_result cfi_expression_evaluate(uint64_t *out, struct cfi_bytes expression,
                                        const struct cfi_frame *frame,
                                        const struct cfi_memory *memory,
                                        const uint64_t *first);
