/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as an ELF file in which functions and a variable are looked up. */
#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/elf_symbols.h"
#include "tests/fuzz/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes bytes = {data, size};
    const struct elf_source source = {.context = &bytes, .read = bytes_read};
    struct elf_place places[8];
    char names[8][24];
    uint64_t address, base;

    for (size_t i = 0; i < 8; i++)
        places[i] = (struct elf_place){
            .offset = i * 96, .name = names[i], .name_size = sizeof names[i]};
    if (elf_find_functions(&source, places, 8) == 0)
        for (size_t i = 0; i < 8; i++)
            if (strlen(names[i]) >= sizeof names[i])
                abort();
    (void)elf_find_variable(&source, "stdout", &address, &base);
    return 0;
}
