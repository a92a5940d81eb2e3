/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions of call frame information: each changes a rule from some address on. They are
 * run up to the address that is asked for. */
#include "agent/native/cfi_private.h"

enum {
    REMEMBERED_MAX = 8,
    ADVANCE = 0x40, /* the two highest bits; the others are the operand */
    OFFSET = 0x80,
    RESTORE = 0xc0,
    NOP = 0x00,
    SET_LOC = 0x01,
    ADVANCE_1 = 0x02,
    ADVANCE_2 = 0x03,
    ADVANCE_4 = 0x04,
    OFFSET_EXTENDED = 0x05,
    RESTORE_EXTENDED = 0x06,
    UNDEFINED = 0x07,
    SAME_VALUE = 0x08,
    REGISTER = 0x09,
    REMEMBER = 0x0a,
    RECALL = 0x0b,
    BASE = 0x0c,
    BASE_REGISTER = 0x0d,
    BASE_OFFSET = 0x0e,
    BASE_EXPRESSION = 0x0f,
    EXPRESSION = 0x10,
    OFFSET_EXTENDED_SIGNED = 0x11,
    BASE_SIGNED = 0x12,
    BASE_OFFSET_SIGNED = 0x13,
    VALUE_OFFSET = 0x14,
    VALUE_OFFSET_SIGNED = 0x15,
    VALUE_EXPRESSION = 0x16,
    ARGUMENTS_SIZE = 0x2e
};

struct run {
    const struct cfi_entry *entry;
    struct cfi_bytes code;
    uint64_t at; /* of the rules so far */
    struct cfi_rules rules, initial;
    int remembered_count;
    struct cfi_rules remembered[REMEMBERED_MAX];
};

/* Ignores rules for registers that we do not follow, such as vector registers. */
static void set(struct run *run, uint64_t number, struct cfi_rule rule)
{
    rule.is_given = true;
    if (number < CFI_REGISTERS)
        run->rules.registers[number] = rule;
}

static void restore(struct run *run, uint64_t number)
{
    if (number < CFI_REGISTERS)
        run->rules.registers[number] = run->initial.registers[number];
}

static struct cfi_bytes take_block(struct run *run)
{
    const uint64_t length = cfi_bytes_take_uleb(&run->code);

    return cfi_bytes_take_part(&run->code, length);
}

static int64_t take_scaled(struct run *run, bool is_signed)
{
    const uint64_t value = is_signed ? (uint64_t)cfi_bytes_take_sleb(&run->code)
                                     : cfi_bytes_take_uleb(&run->code);

    return (int64_t)(value * (uint64_t)run->entry->data_factor);
}

static void set_base(struct run *run, uint8_t op)
{
    struct cfi_rules *rules = &run->rules;

    if (op == BASE_EXPRESSION) {
        rules->base_is_expression = true;
        rules->base = take_block(run);
        return;
    }
    if (op != BASE_OFFSET && op != BASE_OFFSET_SIGNED) {
        rules->base_is_expression = false;
        rules->base_register = cfi_bytes_take_uleb(&run->code);
    }
    if (op == BASE || op == BASE_OFFSET)
        rules->base_offset = (int64_t)cfi_bytes_take_uleb(&run->code);
    else if (op != BASE_REGISTER)
        rules->base_offset = take_scaled(run, true);
}

static void set_register(struct run *run, uint8_t op)
{
    const uint64_t number = cfi_bytes_take_uleb(&run->code);
    struct cfi_rule rule = {.how = CFI_SAME};

    switch (op) {
    case UNDEFINED: rule.how = CFI_UNDEFINED; break;
    case SAME_VALUE: break;
    case REGISTER:
        rule.how = CFI_IN;
        rule.offset = (int64_t)cfi_bytes_take_uleb(&run->code);
        break;
    case OFFSET_EXTENDED:
    case OFFSET_EXTENDED_SIGNED:
        rule.how = CFI_AT;
        rule.offset = take_scaled(run, op == OFFSET_EXTENDED_SIGNED);
        break;
    case VALUE_OFFSET:
    case VALUE_OFFSET_SIGNED:
        rule.how = CFI_IS;
        rule.offset = take_scaled(run, op == VALUE_OFFSET_SIGNED);
        break;
    case EXPRESSION:
    case VALUE_EXPRESSION:
        rule.how = op == EXPRESSION ? CFI_AT_EXPRESSION : CFI_IS_EXPRESSION;
        rule.expression = take_block(run);
        break;
    default: run->code.is_bad = true;
    }
    set(run, number, rule);
}

static void advance(struct run *run, uint64_t by)
{
    run->at += by * run->entry->code_factor;
}

static void remember(struct run *run, bool is_back)
{
    if (is_back ? run->remembered_count == 0 : run->remembered_count == REMEMBERED_MAX)
        run->code.is_bad = true;
    else if (is_back)
        run->rules = run->remembered[--run->remembered_count];
    else
        run->remembered[run->remembered_count++] = run->rules;
}

/* An instruction whose operand is not in its first byte. */
static void run_extended(struct run *run, uint8_t op)
{
    switch (op) {
    case NOP: return;
    case SET_LOC:
        run->at = cfi_bytes_take_pointer(&run->code, run->entry->encoding, 0);
        run->code.is_bad |= (run->entry->encoding & 0x70) !=
                            0; /* not counted from itself */
        return;
    case ADVANCE_1: advance(run, cfi_bytes_take(&run->code, 1)); return;
    case ADVANCE_2: advance(run, cfi_bytes_take(&run->code, 2)); return;
    case ADVANCE_4: advance(run, cfi_bytes_take(&run->code, 4)); return;
    case RESTORE_EXTENDED: restore(run, cfi_bytes_take_uleb(&run->code)); return;
    case REMEMBER: remember(run, false); return;
    case RECALL: remember(run, true); return;
    case BASE:
    case BASE_REGISTER:
    case BASE_OFFSET:
    case BASE_EXPRESSION:
    case BASE_SIGNED:
    case BASE_OFFSET_SIGNED: set_base(run, op); return;
    case ARGUMENTS_SIZE: (void)cfi_bytes_take_uleb(&run->code); return;
    default: set_register(run, op);
    }
}

static void run_one(struct run *run)
{
    const uint8_t op = (uint8_t)cfi_bytes_take(&run->code, 1);
    const uint8_t operand = op & 0x3f;

    switch (op & 0xc0) {
    case ADVANCE: advance(run, operand); break;
    case OFFSET:
        set(run, operand,
            (struct cfi_rule){.how = CFI_AT, .offset = take_scaled(run, false)});
        break;
    case RESTORE: restore(run, operand); break;
    default: run_extended(run, op);
    }
}

/* False if the instructions cannot be read. */
static bool run_until(struct run *run, struct cfi_bytes code, uint64_t address)
{
    run->code = code;
    while (run->code.at < run->code.end && !run->code.is_bad) {
        run_one(run);
        if (run->at > address) /* later instructions are for later addresses */
            break;
    }
    return !run->code.is_bad;
}

bool cfi_rules_find(struct cfi_rules *out, const struct cfi_entry *entry,
                    uint64_t address)
{
    struct run run = {.entry = entry, .at = entry->start};

    if (!run_until(&run, entry->common, UINT64_MAX))
        return false;
    run.at = entry->start;
    run.initial = run.rules;
    if (!run_until(&run, entry->own, address))
        return false;
    *out = run.rules;
    return true;
}
