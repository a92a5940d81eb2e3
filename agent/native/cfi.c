/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/cfi_private.h"

enum {
    /* Registers that a function must preserve by the ABI, so that they keep their values if the
     * file has no rule: rbx, rbp, r12 to r15. */
    KEPT_BY_CALLS = 1u << CFI_RBX | 1u << CFI_RBP | 0xfu << 12
};

struct step {
    const struct cfi_frame *frame;
    const struct cfi_memory *memory;
    uint64_t base;
};

static bool is_known(const struct cfi_frame *frame, uint64_t number)
{
    return number < CFI_REGISTERS && frame->known & 1u << number;
}

static enum cfi_result find_base(uint64_t *out, const struct cfi_rules *rules,
                                 const struct cfi_frame *frame,
                                 const struct cfi_memory *memory)
{
    if (rules->base_is_expression)
        return cfi_expression_evaluate(out, rules->base, frame, memory, NULL);
    if (!is_known(frame, rules->base_register))
        return CFI_NO_REGISTER;
    *out = frame->values[rules->base_register] + (uint64_t)rules->base_offset;
    return CFI_CALLER;
}

static enum cfi_result read_word(const struct step *step, uint64_t address,
                                 uint64_t *out)
{
    return step->memory->read(step->memory->context, address, out) ? CFI_CALLER
                                                                   : CFI_NO_MEMORY;
}

static enum cfi_result take_other(const struct step *step, uint64_t number,
                                  uint64_t *out)
{
    if (!is_known(step->frame, number))
        return CFI_NO_REGISTER;
    *out = step->frame->values[number];
    return CFI_CALLER;
}

static enum cfi_result find_register(const struct step *step,
                                     const struct cfi_rule *rule, int number,
                                     uint64_t *out)
{
    enum cfi_result result;

    switch (rule->how) {
    case CFI_SAME:
        if (!rule->is_given && !(KEPT_BY_CALLS & 1u << number))
            return CFI_NO_REGISTER;
        return take_other(step, (uint64_t)number, out);
    case CFI_UNDEFINED: return CFI_NO_REGISTER;
    case CFI_AT: return read_word(step, step->base + (uint64_t)rule->offset, out);
    case CFI_IS: *out = step->base + (uint64_t)rule->offset; return CFI_CALLER;
    case CFI_IN: return take_other(step, (uint64_t)rule->offset, out);
    case CFI_AT_EXPRESSION:
    case CFI_IS_EXPRESSION:
        result = cfi_expression_evaluate(out, rule->expression, step->frame,
                                         step->memory, &step->base);
        return result == CFI_CALLER && rule->how == CFI_AT_EXPRESSION
                   ? read_word(step, *out, out)
                   : result;
    }
    return CFI_UNREADABLE;
}

enum cfi_result cfi_step(struct cfi_frame *frame, const struct cfi_file *file,
                         uint64_t bias, const struct cfi_memory *memory,
                         struct cfi_room *room)
{
    const uint64_t place = frame->values[CFI_RIP] - frame->is_returned - bias;
    struct cfi_frame caller = {0};
    struct step step = {.frame = frame, .memory = memory};
    struct cfi_entry entry;
    struct cfi_rules rules;
    enum cfi_result result;
    bool is_good;

    if (!cfi_table_find(&entry, file, place, room, &is_good))
        return is_good ? CFI_NO_ENTRY : CFI_UNREADABLE;
    if (entry.return_column != CFI_RIP || !cfi_rules_find(&rules, &entry, place))
        return CFI_UNREADABLE;
    if (rules.registers[CFI_RIP].how == CFI_UNDEFINED)
        return CFI_OUTERMOST;
    if ((result = find_base(&step.base, &rules, frame, memory)) != CFI_CALLER)
        return result;
    for (int i = 0; i < CFI_REGISTERS; i++) {
        result = find_register(&step, &rules.registers[i], i, &caller.values[i]);
        if (result == CFI_CALLER)
            caller.known |= 1u << i;
        else if (i == CFI_RIP) /* the others may not be needed */
            return result;
    }
    if (rules.registers[CFI_RSP].how == CFI_SAME) {
        caller.values[CFI_RSP] = step.base;
        caller.known |= 1u << CFI_RSP;
    }
    caller.is_returned = !entry.is_signal;
    *frame = caller;
    return CFI_CALLER;
}
