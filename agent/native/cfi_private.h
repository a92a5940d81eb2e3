/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/native/cfi.h"

/* The entry of one function in the file. */
struct cfi_entry {
    uint64_t start, size; /* as addresses of the file */
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_column;
    uint8_t encoding; /* encoding of addresses in instructions */
    bool is_signal;   /* the frame below was interrupted by a signal, and is no call */
    struct cfi_bytes common, own; /* instructions */
};

enum cfi_how {
    CFI_SAME, /* default */
    CFI_UNDEFINED,
    CFI_AT,            /* in memory at the frame's base + offset */
    CFI_IS,            /* the base + offset */
    CFI_IN,            /* in another register */
    CFI_AT_EXPRESSION, /* in memory, at the expression's value */
    CFI_IS_EXPRESSION
};

struct cfi_rule {
    enum cfi_how how;
    bool is_given;
    int64_t offset; /* or the register */
    struct cfi_bytes expression;
};

/* The rules to find the caller's registers. */
struct cfi_rules {
    bool base_is_expression;
    uint64_t base_register;
    int64_t base_offset;
    struct cfi_bytes base;
    struct cfi_rule registers[CFI_REGISTERS];
};

/* False: no entry for this address. *is_good false: the entry or table cannot be read. */
bool cfi_table_find(struct cfi_entry *out, const struct cfi_file *file,
                    uint64_t address, struct cfi_room *room, bool *is_good);
/* The rules at `address`; false if the instructions are not understood. */
bool cfi_rules_find(struct cfi_rules *out, const struct cfi_entry *entry,
                    uint64_t address);
/* Evaluates a DWARF expression, which begins with `first` on its stack if has_first. CFI_CALLER on
 * success. */
enum cfi_result cfi_expression_evaluate(uint64_t *out, struct cfi_bytes expression,
                                        const struct cfi_frame *frame,
                                        const struct cfi_memory *memory,
                                        const uint64_t *first);
