/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the entry of an address: a sorted table in .eh_frame_hdr points to an entry (FDE) in
 * .eh_frame, and the FDE to what it has in common with others (CIE). */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/native/cfi_private.h"

enum {
    SEGMENTS_READ_MAX = 256,
    HEADER_BYTES = 12, /* of .eh_frame_hdr, in the encodings that we read */
    PAIR_BYTES = 8,
    ENCODING_ADDRESS = 0x00,
    ENCODING_IN_4_FROM_ITSELF = 0x1b,
    ENCODING_IN_4 = 0x03,
    ENCODING_IN_4_FROM_HEADER = 0x3b,
    ENCODING_INDIRECT = 0x80,
    ENCODING_NONE = 0xff
};

/* ---- The file ---------------------------------------------------------------------------- */

static void note_segment(struct cfi_file *file, const Elf64_Phdr *segment)
{
    if (segment->p_type == PT_LOAD && file->segment_count < CFI_SEGMENTS_MAX)
        file->segments[file->segment_count++] = (struct cfi_segment){
            segment->p_offset, segment->p_vaddr, segment->p_filesz};
    if (segment->p_type == PT_GNU_EH_FRAME) {
        file->header = segment->p_vaddr;
        file->header_size = segment->p_filesz;
    }
}

int cfi_file_open(struct cfi_file *out, const struct elf_source *source)
{
    Elf64_Phdr segment;
    Elf64_Ehdr header;

    *out = (struct cfi_file){.source = *source};
    if (!source->read(source->context, 0, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64 ||
        header.e_phentsize != sizeof segment)
        return -ENOEXEC;
    for (uint64_t i = 0; i < header.e_phnum && i < SEGMENTS_READ_MAX; i++) {
        if (header.e_phoff > INT64_MAX ||
            !source->read(source->context, header.e_phoff + i * sizeof segment,
                          &segment, sizeof segment))
            return -ENOEXEC;
        note_segment(out, &segment);
    }
    return 0;
}

uint64_t cfi_file_address(const struct cfi_file *file, uint64_t offset)
{
    for (int i = 0; i < file->segment_count; i++)
        if (offset >= file->segments[i].offset &&
            offset - file->segments[i].offset < file->segments[i].size)
            return offset - file->segments[i].offset + file->segments[i].address;
    return 0;
}

static bool read_at(const struct cfi_file *file, uint64_t address, void *dst,
                    size_t length)
{
    for (int i = 0; i < file->segment_count; i++) {
        const struct cfi_segment *segment = &file->segments[i];

        if (address >= segment->address && address - segment->address < segment->size &&
            segment->size - (address - segment->address) >= length)
            return file->source.read(file->source.context,
                                     address - segment->address + segment->offset, dst,
                                     length);
    }
    return false;
}

/* ---- The sorted table -------------------------------------------------------------------- */

/* Finds the last pair that begins at or below `address`; both are relative to the header. */
static bool search(const struct cfi_file *file, uint64_t table, uint32_t count,
                   uint64_t address, uint64_t *entry)
{
    const int64_t wanted = (int64_t)(address - file->header);
    int32_t pair[2];
    uint32_t low = 0, high = count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (!read_at(file, table + (uint64_t)middle * PAIR_BYTES, pair, sizeof pair))
            return false;
        if (pair[0] <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 ||
        !read_at(file, table + (uint64_t)(low - 1) * PAIR_BYTES, pair, sizeof pair))
        return false;
    *entry = file->header + (uint64_t)(int64_t)pair[1];
    return true;
}

static bool find_entry(const struct cfi_file *file, uint64_t address, uint64_t *entry,
                       bool *is_good)
{
    uint8_t head[HEADER_BYTES];
    uint32_t count;

    if (file->header_size < sizeof head ||
        !read_at(file, file->header, head, sizeof head))
        return false;
    if (head[0] != 1 || head[1] != ENCODING_IN_4_FROM_ITSELF ||
        head[2] != ENCODING_IN_4 || head[3] != ENCODING_IN_4_FROM_HEADER) {
        *is_good = false;
        return false;
    }
    memcpy(&count, head + 8, sizeof count);
    return search(file, file->header + sizeof head, count, address, entry);
}

/* ---- An entry ---------------------------------------------------------------------------- */

/* The bytes behind the length field of the entry at `address`. */
static bool read_entry(struct cfi_bytes *out, const struct cfi_file *file,
                       uint64_t address, uint8_t dst[CFI_ENTRY_MAX_BYTES])
{
    uint32_t length;

    if (!read_at(file, address, &length, sizeof length) || length < 4 ||
        length > CFI_ENTRY_MAX_BYTES ||
        !read_at(file, address + sizeof length, dst, length))
        return false;
    *out = (struct cfi_bytes){.at = dst, .end = dst + length};
    return true;
}

/* Reads the letters behind 'z', each with its bytes. */
static void take_augmentation(struct cfi_entry *out, const char *letters,
                              struct cfi_bytes *in)
{
    struct cfi_bytes data = cfi_bytes_take_part(in, cfi_bytes_take_uleb(in));

    for (; *letters && !in->is_bad; letters++) {
        uint8_t encoding;

        switch (*letters) {
        case 'R': out->encoding = (uint8_t)cfi_bytes_take(&data, 1); break;
        case 'P':
            encoding = (uint8_t)cfi_bytes_take(&data, 1);
            (void)cfi_bytes_take_pointer(&data, encoding & 0x0f,
                                         0); /* for exceptions */
            break;
        case 'L': (void)cfi_bytes_take(&data, 1); break;
        case 'S': out->is_signal = true; break;
        default: data.is_bad = true;
        }
        in->is_bad |= data.is_bad;
    }
}

static bool take_common(struct cfi_entry *out, struct cfi_bytes in)
{
    const uint64_t id = cfi_bytes_take(&in, 4);
    const uint64_t version = cfi_bytes_take(&in, 1);
    const char *letters = (const char *)in.at;

    while (cfi_bytes_take(&in, 1) != 0) /* 0 also at the end */
        ;
    if (in.is_bad || id != 0 || (version != 1 && version != 3))
        return false;
    out->code_factor = cfi_bytes_take_uleb(&in);
    out->data_factor = cfi_bytes_take_sleb(&in);
    out->return_column = version == 1 ? cfi_bytes_take(&in, 1)
                                      : cfi_bytes_take_uleb(&in);
    out->encoding = ENCODING_ADDRESS;
    if (*letters == 'z')
        take_augmentation(out, letters + 1, &in);
    else if (*letters)
        return false;
    out->common = in;
    return !in.is_bad && out->encoding != ENCODING_NONE &&
           !(out->encoding & ENCODING_INDIRECT);
}

/* `entry`: the address of the entry. */
static bool take_own(struct cfi_entry *out, const struct cfi_file *file, uint64_t entry,
                     struct cfi_room *room)
{
    struct cfi_bytes in, common;
    uint64_t back;

    if (!read_entry(&in, file, entry, room->own))
        return false;
    back = cfi_bytes_take(&in, 4);
    if (back == 0 || !read_entry(&common, file, entry + 4 - back, room->common) ||
        !take_common(out, common))
        return false;
    out->start = cfi_bytes_take_pointer(&in, out->encoding,
                                        entry + 4 + (uint64_t)(in.at - room->own));
    out->size = cfi_bytes_take_pointer(&in, out->encoding & 0x0f, 0);
    if (((const char *)room->common)[5] == 'z') /* own augmentation: not used */
        (void)cfi_bytes_take_part(&in, cfi_bytes_take_uleb(&in));
    out->own = in;
    return !in.is_bad;
}

bool cfi_table_find(struct cfi_entry *out, const struct cfi_file *file,
                    uint64_t address, struct cfi_room *room, bool *is_good)
{
    uint64_t entry;

    *out = (struct cfi_entry){0};
    *is_good = true;
    if (!find_entry(file, address, &entry, is_good))
        return false;
    *is_good = take_own(out, file, entry, room);
    return *is_good && address >= out->start && address - out->start < out->size;
}
