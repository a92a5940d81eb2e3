/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as an ELF file with call frame information and as the stack that this
 * unwinds; and as the name of a C++ function. */
#include <stdlib.h>
#include <string.h>

#include "agent/native/cfi.h"
#include "agent/native/cpp_name.h"
#include "tests/fuzz/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    STEPS_MAX = 16,
    STACK_ADDRESS = 0x1000
};

static bool read_stack(void *context, uint64_t address, uint64_t *word)
{
    return bytes_read(context, address - STACK_ADDRESS, word, sizeof *word);
}

/* Walks the stack from the address `place`. */
static void walk(const struct cfi_file *file, uint64_t place, struct bytes *bytes)
{
    static struct cfi_room room;
    const struct cfi_memory memory = {.context = bytes, .read = read_stack};
    struct cfi_frame frame = {.known = (1u << CFI_REGISTERS) - 1};

    for (int i = 0; i < CFI_REGISTERS; i++)
        frame.values[i] = STACK_ADDRESS;
    frame.values[CFI_RIP] = place;
    for (int i = 0; i < STEPS_MAX; i++)
        if (cfi_step(&frame, file, 0, &memory, &room) != CFI_CALLER)
            return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes bytes = {data, size};
    const struct elf_source source = {.context = &bytes, .read = bytes_read};
    struct cfi_file file;
    char name[64], text[24];
    uint64_t entry = 0;

    memset(name, 0, sizeof name);
    memcpy(name, data, size < sizeof name - 1 ? size : sizeof name - 1);
    cpp_name_format(text, sizeof text, name);
    if (strlen(text) >= sizeof text)
        abort();
    if (cfi_file_open(&file, &source) < 0)
        return 0;
    (void)bytes_read(&bytes, 24, &entry, sizeof entry); /* e_entry */
    for (uint64_t place = 0; place < 512; place += 16) {
        walk(&file, entry + place, &bytes);
        walk(&file, cfi_file_address(&file, place * 8), &bytes);
    }
    return 0;
}
