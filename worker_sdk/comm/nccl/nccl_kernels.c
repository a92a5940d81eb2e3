/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/nccl/nccl_kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/symbol.h"

/* ---- PTX --------------------------------------------------------------------------------- */

/* All kernels take the same parameters: a, b, c; the number of elements; n, m, k; by. BEGIN loads
 * the pointers into %x0 to %x2, the number of elements into %x3, n, m and k into %x4 to %x6, `by`
 * into %d0. %x7 is this thread's first element, %x8 the distance to its next one. */
#define BEGIN(name)                                                                    \
    ".visible .entry " name "(.param .u64 pa, .param .u64 pb, .param .u64 pc,\n"       \
    ".param .u64 pi, .param .u64 pn, .param .u64 pm, .param .u64 pk, .param .f64 "     \
    "pby)\n{\n"                                                                        \
    ".reg .pred %p<8>;\n.reg .b16 %h<4>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n"       \
    ".reg .f64 %d<4>;\n.reg .b64 %x<24>;\n"                                            \
    "ld.param.u64 %x0, [pa];\ncvta.to.global.u64 %x0, %x0;\n"                          \
    "ld.param.u64 %x1, [pb];\ncvta.to.global.u64 %x1, %x1;\n"                          \
    "ld.param.u64 %x2, [pc];\ncvta.to.global.u64 %x2, %x2;\n"                          \
    "ld.param.u64 %x3, [pi];\nld.param.u64 %x4, [pn];\nld.param.u64 %x5, [pm];\n"      \
    "ld.param.u64 %x6, [pk];\nld.param.f64 %d0, [pby];\n"                              \
    "mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n"            \
    "mov.u32 %r3, %nctaid.x;\nmul.wide.u32 %x7, %r0, %r1;\ncvt.u64.u32 %x8, %r2;\n"    \
    "add.u64 %x7, %x7, %x8;\nmul.wide.u32 %x8, %r3, %r1;\n"
#define EACH "each:\nsetp.ge.u64 %p0, %x7, %x3;\n@%p0 bra done;\n"
#define END  "add.u64 %x7, %x7, %x8;\nbra each;\ndone:\nret;\n}\n"
/* Address of element %x7 of `base`; elements have 2^shift bytes. */
#define AT(to, base, shift)                                                            \
    "shl.b64 " to ", %x7, " shift ";\nadd.u64 " to ", " to ", " base ";\n"

/* Conversions between f32 and 16-bit floats. bf16 by its bits, for devices without an instruction
 * for it. */
#define F32_OF_F16  "cvt.f32.f16 %f0, %h0;\n"
#define F16_OF_F32  "cvt.rn.f16.f32 %h0, %f0;\n"
#define F32_OF_BF16 "cvt.u32.u16 %r4, %h0;\nshl.b32 %r4, %r4, 16;\nmov.b32 %f0, %r4;\n"
#define BF16_OF_F32                                                                    \
    "mov.b32 %r4, %f0;\nshr.u32 %r5, %r4, 16;\nand.b32 %r6, %r5, 1;\n"                 \
    "add.u32 %r6, %r6, 32767;\nadd.u32 %r6, %r6, %r4;\nshr.u32 %r6, %r6, 16;\n"        \
    "or.b32 %r5, %r5, 64;\nand.b32 %r7, %r4, 2147483647;\n"                            \
    "setp.gt.u32 %p1, %r7, 2139095040;\nselp.b32 %r6, %r5, %r6, %p1;\n"                \
    "cvt.u16.u32 %h0, %r6;\n"
#define SCALE                                                                          \
    "cvt.f64.f32 %d1, %f0;\nmul.rn.f64 %d1, %d1, %d0;\ncvt.rn.f32.f64 %f0, %d1;\n"

#define CONVERT(name, from_shift, load, convert, to_shift, store)                      \
    BEGIN(name)                                                                        \
    EACH AT("%x9", "%x0", from_shift) AT("%x10", "%x1", to_shift) load convert store END
#define LOAD_F32   "ld.global.f32 %f0, [%x9];\n"
#define LOAD_HALF  "ld.global.u16 %h0, [%x9];\n"
#define STORE_F32  "st.global.f32 [%x10], %f0;\n"
#define STORE_HALF "st.global.u16 [%x10], %h0;\n"
#define IN_PLACE(name, shift, body)                                                    \
    BEGIN(name) EACH AT("%x9", "%x0", shift)                                           \
    body END

/* Adds up `length` products of a row and a column, from the addresses [%x12] and [%x13], which
 * advance by %x14 and %x15 bytes. */
#define SUM_PRODUCTS(length)                                                           \
    "mov.f32 %f0, 0f00000000;\nmov.u64 %x11, 0;\n"                                     \
    "more:\nsetp.ge.u64 %p1, %x11, " length ";\n@%p1 bra made;\n"                      \
    "ld.global.f32 %f1, [%x12];\nld.global.f32 %f2, [%x13];\n"                         \
    "mul.rn.f32 %f1, %f1, %f2;\nadd.rn.f32 %f0, %f0, %f1;\n"                           \
    "add.u64 %x12, %x12, %x14;\nadd.u64 %x13, %x13, %x15;\n"                           \
    "add.u64 %x11, %x11, 1;\nbra more;\nmade:\n"
/* Row %x9 and column %x10 of element %x7 of a matrix with `columns` columns. */
#define ROW_AND_COLUMN(columns)                                                        \
    "div.u64 %x9, %x7, " columns ";\nrem.u64 %x10, %x7, " columns ";\n"
/* to = base + element * 4 */
#define FLOAT_AT(to, base, element)                                                    \
    "shl.b64 " to ", " element ", 2;\nadd.u64 " to ", " to ", " base ";\n"

/* %f0 = the dot product of columns %x10 and %x11 of a: 256 partial sums, then sums of pairs. All
 * threads get it. */
#define DOT(name)                                                                      \
    "mov.f32 %f0, 0f00000000;\nmov.u64 %x12, %x9;\n"                                   \
    "part_" name ":\nsetp.ge.u64 %p2, %x12, %x4;\n@%p2 bra parts_" name ";\n"          \
    "mul.lo.u64 %x13, %x12, %x6;\nadd.u64 %x14, %x13, %x10;\n" FLOAT_AT(               \
        "%x14", "%x0",                                                                 \
        "%x14") "add.u64 %x15, %x13, %x11;\n" FLOAT_AT("%x15", "%x0",                  \
                                                       "%x15") "ld.global.f32 %f4, "   \
                                                               "[%x14];\nld.global."   \
                                                               "f32 %f5, [%x15];\n"    \
                                                               "mul.rn.f32 %f4, %f4, " \
                                                               "%f5;\nadd.rn.f32 "     \
                                                               "%f0, %f0, %f4;\n"      \
                                                               "add.u64 %x12, %x12, "  \
                                                               "256;\nbra part_" name  \
                                                               ";\nparts_" name ":\n"  \
                                                               "st.shared.f32 [%r6], " \
                                                               "%f0;\nbar.sync "       \
                                                               "0;\nmov.u32 %r7, "     \
                                                               "128;\n"                \
                                                               "half_" name            \
                                                               ":\nsetp.ge.u32 %p3, "  \
                                                               "%r2, %r7;\n@%p3 bra "  \
                                                               "wait_" name ";\n"      \
                                                               "shl.b32 %r8, %r7, "    \
                                                               "2;\nadd.u32 %r8, "     \
                                                               "%r8, "                 \
                                                               "%r6;\nld.shared.f32 "  \
                                                               "%f4, [%r8];\n"         \
                                                               "ld.shared.f32 %f5, "   \
                                                               "[%r6];\nadd.rn.f32 "   \
                                                               "%f5, %f5, "            \
                                                               "%f4;\nst.shared.f32 "  \
                                                               "[%r6], "               \
                                                               "%f5;\n"                \
                                                               "wait_" name            \
                                                               ":\nbar.sync "          \
                                                               "0;\nshr.u32 %r7, "     \
                                                               "%r7, 1;\nsetp.ne.u32 " \
                                                               "%p3, %r7, 0;\n"        \
                                                               "@%p3 bra half_" name   \
                                                               ";\nld.shared.f32 "     \
                                                               "%f0, "                 \
                                                               "[%r5];\nbar.sync 0;\n"
/* For each row of this thread: body, with the row in %x12 and its address in %x13. */
#define OWN_ROWS(name, body)                                                           \
    "mov.u64 %x12, %x9;\n"                                                             \
    "row_" name ":\nsetp.ge.u64 %p2, %x12, %x4;\n@%p2 bra rows_" name ";\n"            \
    "mul.lo.u64 %x13, %x12, %x6;\n" body "add.u64 %x12, %x12, 256;\nbra row_" name     \
    ";\nrows_" name ":\n"

/* Multiplies by %d0, or by the f64 at %x2. */
#define SCALED(name, shift, body)                                                      \
    BEGIN(name)                                                                        \
    "setp.eq.u64 %p1, %x2, 0;\n@%p1 bra by;\nld.global.f64 %d0, [%x2];\n"              \
    "setp.ge.f64 %p1, %d0, 0d3FF0000000000000;\n@%p1 bra done;\nby:\n" EACH AT(        \
        "%x9", "%x0", shift)                                                           \
    body END
/* load: the bits with the exponent in %r4. In NaN and infinity all bits of `exponent` are set.
 * Threads that find such an element all store the same value. */
#define MARK(name, shift, load, exponent)                                              \
    IN_PLACE(name, shift,                                                              \
             load "and.b32 %r4, %r4, " exponent ";\nsetp.ne.u32 %p1, %r4, " exponent   \
                  ";\n@%p1 bra finite;\n"                                              \
                  "ld.global.u32 %r4, [%x2];\nsetp.ne.u32 %p1, %r4, 0;\n"              \
                  "@%p1 bra finite;\ncvt.u32.u64 %r4, %x6;\n"                          \
                  "st.global.u32 [%x2], %r4;\nfinite:\n")
/* Each thread adds every %x8-th element, then pairs of a block's 256 partial sums are added. load:
 * the next element in %d2, from %x9. */
#define SQUARES(name, shift, load)                                                     \
    BEGIN(name)                                                                        \
    ".shared .align 8 .b8 parts[2048];\n"                                              \
    "mov.u32 %r5, parts;\nshl.b32 %r6, %r2, 3;\nadd.u32 %r6, %r6, %r5;\n"              \
    "mov.f64 %d1, 0d0000000000000000;\n"                                               \
    "more:\nsetp.ge.u64 %p1, %x7, %x4;\n@%p1 bra made;\n" AT("%x9", "%x0", shift) load \
        "mul.rn.f64 %d2, %d2, %d2;\nadd.rn.f64 %d1, %d1, %d2;\n"                       \
        "add.u64 %x7, %x7, %x8;\nbra more;\n"                                          \
        "made:\nst.shared.f64 [%r6], %d1;\nbar.sync 0;\nmov.u32 %r7, 128;\n"           \
        "half:\nsetp.ge.u32 %p2, %r2, %r7;\n@%p2 bra wait;\n"                          \
        "shl.b32 %r8, %r7, 3;\nadd.u32 %r8, %r8, %r6;\n"                               \
        "ld.shared.f64 %d2, [%r8];\nld.shared.f64 %d1, [%r6];\n"                       \
        "add.rn.f64 %d1, %d1, %d2;\nst.shared.f64 [%r6], %d1;\n"                       \
        "wait:\nbar.sync 0;\nshr.u32 %r7, %r7, 1;\nsetp.ne.u32 %p2, %r7, 0;\n"         \
        "@%p2 bra half;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 bra done;\n"                   \
        "cvt.u64.u32 %x9, %r0;\nshl.b64 %x9, %x9, 3;\nadd.u64 %x9, %x9, %x1;\n"        \
        "st.global.f64 [%x9], %d1;\ndone:\nret;\n}\n"
/* splitmix64, by Sebastiano Vigna: the number %x10 from the state %x9. */
#define SPLITMIX_NUMBERS                                                               \
    "mov.u64 %x16, 0x9e3779b97f4a7c15;\nmov.u64 %x17, 0xbf58476d1ce4e5b9;\n"           \
    "mov.u64 %x18, 0x94d049bb133111eb;\n"
#define SPLITMIX                                                                       \
    "shr.u64 %x10, %x9, 30;\nxor.b64 %x10, %x10, %x9;\nmul.lo.u64 %x10, %x10, %x17;\n" \
    "shr.u64 %x11, %x10, 27;\nxor.b64 %x10, %x10, %x11;\n"                             \
    "mul.lo.u64 %x10, %x10, %x18;\nshr.u64 %x11, %x10, 31;\nxor.b64 %x10, %x10, "      \
    "%x11;\n"
/* The sum of a number for each element and its place: the order of addition does not matter. A
 * change of one bit always changes the sum. */
#define DIGEST(name, shift, bits)                                                      \
    BEGIN(name)                                                                        \
    SPLITMIX_NUMBERS                                                                   \
    "mov.u64 %x12, 0;\n"                                                               \
    "more:\nsetp.ge.u64 %p1, %x7, %x4;\n@%p1 bra made;\n" AT(                          \
        "%x9", "%x0",                                                                  \
        shift) "ld.global.u" bits                                                      \
               " %x9, [%x9];\nadd.u64 %x11, %x7, 1;\nmul.lo.u64 %x11, %x11, %x16;\n"   \
               "add.u64 %x9, %x9, %x11;\n" SPLITMIX                                    \
               "add.u64 %x12, %x12, %x10;\nadd.u64 %x7, %x7, %x8;\nbra more;\n"        \
               "made:\nred.global.add.u64 [%x1], %x12;\nret;\n}\n"

/* clang-format off */
static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    CONVERT("TO_F16", "2", LOAD_F32, F16_OF_F32, "1", STORE_HALF)
    CONVERT("TO_BF16", "2", LOAD_F32, BF16_OF_F32, "1", STORE_HALF)
    CONVERT("FROM_F16", "1", LOAD_HALF, F32_OF_F16, "2", STORE_F32)
    CONVERT("FROM_BF16", "1", LOAD_HALF, F32_OF_BF16, "2", STORE_F32)

    SCALED("SCALE_F16", "1",
           LOAD_HALF F32_OF_F16 SCALE F16_OF_F32 "st.global.u16 [%x9], %h0;\n")
    SCALED("SCALE_BF16", "1",
           LOAD_HALF F32_OF_BF16 SCALE BF16_OF_F32 "st.global.u16 [%x9], %h0;\n")
    SCALED("SCALE_F32", "2", LOAD_F32 SCALE "st.global.f32 [%x9], %f0;\n")
    SCALED("SCALE_F64", "3",
           "ld.global.f64 %d1, [%x9];\nmul.rn.f64 %d1, %d1, %d0;\n"
           "st.global.f64 [%x9], %d1;\n")

    MARK("MARK_F16", "1", LOAD_HALF "cvt.u32.u16 %r4, %h0;\n", "31744")
    MARK("MARK_BF16", "1", LOAD_HALF "cvt.u32.u16 %r4, %h0;\n", "32640")
    MARK("MARK_F32", "2", "ld.global.u32 %r4, [%x9];\n", "2139095040")
    MARK("MARK_F64", "3",
         "ld.global.u64 %x10, [%x9];\nshr.u64 %x10, %x10, 32;\n"
         "cvt.u32.u64 %r4, %x10;\n", "2146435072")
    BEGIN("RAISE")
    EACH
    "ld.global.u32 %r4, [%x0];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra done;\n"
    "cvt.u16.u64 %h0, %x5;\ncvt.u32.u64 %r4, %x5;\n"
    "setp.eq.u64 %p1, %x6, 2;\n@%p1 st.global.u16 [%x1], %h0;\n"
    "setp.eq.u64 %p1, %x6, 4;\n@%p1 st.global.u32 [%x1], %r4;\n"
    "setp.eq.u64 %p1, %x6, 8;\n@%p1 st.global.u64 [%x1], %x5;\n" END

    SQUARES("SQUARES_F16", "1", LOAD_HALF F32_OF_F16 "cvt.f64.f32 %d2, %f0;\n")
    SQUARES("SQUARES_BF16", "1", LOAD_HALF F32_OF_BF16 "cvt.f64.f32 %d2, %f0;\n")
    SQUARES("SQUARES_F32", "2", LOAD_F32 "cvt.f64.f32 %d2, %f0;\n")
    SQUARES("SQUARES_F64", "3", "ld.global.f64 %d2, [%x9];\n")
    BEGIN("ADD_UP")
    EACH
    "mov.f64 %d1, 0d0000000000000000;\nmov.u64 %x11, 0;\nmov.u64 %x12, %x0;\n"
    "more:\nsetp.ge.u64 %p1, %x11, %x4;\n@%p1 bra made;\n"
    "ld.global.f64 %d2, [%x12];\nadd.rn.f64 %d1, %d1, %d2;\n"
    "add.u64 %x12, %x12, 8;\nadd.u64 %x11, %x11, 1;\nbra more;\n"
    "made:\nst.global.f64 [%x2], %d1;\n" END
    /* As in clip.c: %d1 is the norm, %d2 the factor. */
    BEGIN("CLIP")
    EACH
    "mov.f64 %d1, 0d0000000000000000;\nmov.u64 %x11, 0;\nmov.u64 %x12, %x0;\n"
    "more:\nsetp.ge.u64 %p1, %x11, %x4;\n@%p1 bra made;\nadd.u64 %x11, %x11, 1;\n"
    "ld.global.f64 %d2, [%x12];\nadd.rn.f64 %d1, %d1, %d2;\n"
    "mov.b64 %x13, %d1;\nshr.u64 %x13, %x13, 52;\n"
    "and.b64 %x13, %x13, 2047;\nsetp.eq.u64 %p1, %x13, 2047;\n@%p1 bra bad;\n"
    "add.u64 %x12, %x12, 8;\nbra more;\n"
    "bad:\ncvt.u32.u64 %r4, %x11;\nmov.f64 %d2, 0d3FF0000000000000;\nbra store;\n"
    "made:\nmov.u32 %r4, 0;\nsqrt.rn.f64 %d1, %d1;\n"
    "add.rn.f64 %d2, %d1, 0d3EB0C6F7A0B5ED8D;\ndiv.rn.f64 %d2, %d0, %d2;\n"
    "store:\nst.global.u32 [%x2], %r4;\nst.global.f64 [%x1], %d1;\n"
    "add.u64 %x9, %x1, 8;\nst.global.f64 [%x9], %d2;\n" END

    DIGEST("DIGEST_8", "0", "8")
    DIGEST("DIGEST_16", "1", "16")
    DIGEST("DIGEST_32", "2", "32")
    DIGEST("DIGEST_64", "3", "64")

    IN_PLACE("DIVIDE", "2",
             LOAD_F32
             "cvt.rn.f32.f64 %f1, %d0;\ndiv.rn.f32 %f0, %f0, %f1;\n"
             "st.global.f32 [%x9], %f0;\n")
    IN_PLACE("ADD_BOTH", "2",
             LOAD_F32 AT("%x10", "%x1", "2")
             "ld.global.f32 %f1, [%x10];\nadd.rn.f32 %f0, %f0, %f1;\n"
             STORE_F32 "st.global.f32 [%x9], %f0;\n")
    IN_PLACE("SUBTRACT", "2",
             LOAD_F32 AT("%x10", "%x1", "2")
             "ld.global.f32 %f1, [%x10];\nsub.rn.f32 %f0, %f0, %f1;\n"
             "st.global.f32 [%x9], %f0;\n")

    BEGIN("CLEAR_IF")
    "ld.global.u32 %r4, [%x2];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra done;\n"
    "mov.f32 %f0, 0f00000000;\n"
    EACH AT("%x9", "%x0", "2") "st.global.f32 [%x9], %f0;\n" END

    /* Twelve random numbers for each element, as powersgd.c does on a host. */
    BEGIN("DRAW_IF")
    "ld.global.u32 %r4, [%x2];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra done;\n"
    SPLITMIX_NUMBERS
    EACH
    "mul.lo.u64 %x9, %x7, 12;\nmul.lo.u64 %x9, %x9, %x16;\nadd.u64 %x9, %x9, %x5;\n"
    "mov.f64 %d1, 0dC018000000000000;\nmov.u32 %r4, 0;\n"
    "again:\nadd.u64 %x9, %x9, %x16;\n"
    SPLITMIX "shr.u64 %x10, %x10, 11;\n"
    "cvt.rn.f64.u64 %d2, %x10;\nmul.rn.f64 %d2, %d2, 0d3CA0000000000000;\n"
    "add.rn.f64 %d1, %d1, %d2;\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 12;\n"
    "@%p1 bra again;\ncvt.rn.f32.f64 %f0, %d1;\n"
    AT("%x10", "%x0", "2") STORE_F32 END

    /* Matrices: the products of an element are added in the same order as in powersgd.c. */
    BEGIN("MULTIPLY")
    EACH ROW_AND_COLUMN("%x6")
    "mul.lo.u64 %x12, %x9, %x5;\n" FLOAT_AT("%x12", "%x0", "%x12")
    FLOAT_AT("%x13", "%x1", "%x10") "mov.u64 %x14, 4;\nshl.b64 %x15, %x6, 2;\n"
    SUM_PRODUCTS("%x5") AT("%x10", "%x2", "2") STORE_F32 END
    /* Here neighbouring threads have neighbouring columns of a, so that they read adjacent
     * memory. */
    BEGIN("MULTIPLY_TRANSPOSED")
    EACH ROW_AND_COLUMN("%x5")
    FLOAT_AT("%x12", "%x0", "%x10") FLOAT_AT("%x13", "%x1", "%x9")
    "shl.b64 %x14, %x5, 2;\nshl.b64 %x15, %x6, 2;\n"
    SUM_PRODUCTS("%x4")
    "mul.lo.u64 %x10, %x10, %x6;\nadd.u64 %x10, %x10, %x9;\n"
    FLOAT_AT("%x10", "%x2", "%x10") STORE_F32 END
    BEGIN("DECOMPRESS")
    EACH ROW_AND_COLUMN("%x5")
    "mul.lo.u64 %x12, %x9, %x6;\n" FLOAT_AT("%x12", "%x1", "%x12")
    "mul.lo.u64 %x13, %x10, %x6;\n" FLOAT_AT("%x13", "%x2", "%x13")
    "mov.u64 %x14, 4;\nmov.u64 %x15, 4;\n"
    SUM_PRODUCTS("%x6") AT("%x10", "%x0", "2") STORE_F32 END

    /* One block; a thread has every 256th row. %f1: added to the norms; %r5: address of the partial
     * sums, %r6: of ours. */
    BEGIN("MAKE_ORTHONORMAL")
    ".shared .align 4 .b8 parts[1024];\n"
    "mov.u32 %r5, parts;\nshl.b32 %r6, %r2, 2;\nadd.u32 %r6, %r6, %r5;\n"
    "cvt.u64.u32 %x9, %r2;\ncvt.rn.f32.f64 %f1, %d0;\n"
    "setp.eq.u64 %p1, %x2, 0;\n@%p1 bra begin;\nld.global.u32 %r4, [%x2];\n"
    "setp.eq.u32 %p1, %r4, 0;\n@%p1 bra begin;\nmov.f32 %f1, 0f00000000;\n"
    "begin:\nmov.u64 %x10, 0;\n"
    "column:\nsetp.ge.u64 %p0, %x10, %x6;\n@%p0 bra done;\nmov.u64 %x11, %x10;\n"
    DOT("norm")
    "sqrt.rn.f32 %f2, %f0;\nadd.rn.f32 %f2, %f2, %f1;\n"
    "setp.eq.f32 %p1, %f2, 0f00000000;\n@%p1 bra others;\n"
    OWN_ROWS("scale",
             "add.u64 %x14, %x13, %x10;\n" FLOAT_AT("%x14", "%x0", "%x14")
             "ld.global.f32 %f4, [%x14];\ndiv.rn.f32 %f4, %f4, %f2;\n"
             "st.global.f32 [%x14], %f4;\n")
    "others:\nadd.u64 %x11, %x10, 1;\n"
    "other:\nsetp.ge.u64 %p1, %x11, %x6;\n@%p1 bra next;\n"
    DOT("pair")
    OWN_ROWS("less",
             "add.u64 %x14, %x13, %x10;\n" FLOAT_AT("%x14", "%x0", "%x14")
             "ld.global.f32 %f4, [%x14];\nmul.rn.f32 %f4, %f0, %f4;\n"
             "add.u64 %x15, %x13, %x11;\n" FLOAT_AT("%x15", "%x0", "%x15")
             "ld.global.f32 %f5, [%x15];\nsub.rn.f32 %f5, %f5, %f4;\n"
             "st.global.f32 [%x15], %f5;\n")
    "add.u64 %x11, %x11, 1;\nbra other;\n"
    "next:\nadd.u64 %x10, %x10, 1;\nbra column;\ndone:\nret;\n}\n";
/* clang-format on */

const char *ct_nccl_kernels_text(void)
{
    return ptx;
}

/* ---- The driver -------------------------------------------------------------------------- */

#define DRIVER_FUNCTIONS(X)                                                            \
    X(cuModuleLoadData) X(cuModuleGetFunction) X(cuModuleUnload) X(cuLaunchKernel)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the table above and the list */
static bool is_open;
static struct ct_nccl_kernels *loaded;

/* The driver library stays open until the process ends: the CUDA runtime has it open, too. */
static int open_driver(struct ctrun_error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: %s", dlerror());
#define FIND(name)                                                                     \
    if (!ct_find_symbol(library, #name, &driver.name))                                 \
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: libcuda.so.1: %s is missing",  \
                       #name);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    is_open = true;
    return 0;
}

static int load(struct ct_nccl_kernels *kernels, struct ctrun_error *err)
{
    static const char *const names[] = {
#define NAME(name, items) #name,
        CT_DEVICE_KERNELS(NAME)
#undef NAME
    };
    CUmodule module;
    CUresult code;
    int rc;

    pthread_mutex_lock(&lock);
    rc = is_open ? 0 : open_driver(err);
    pthread_mutex_unlock(&lock);
    if (rc < 0)
        return rc;
    if ((code = driver.cuModuleLoadData(&module, ptx)) != 0)
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "nccl: the driver cannot load the kernels of ctrun: CUDA error %d",
            (int)code);
    for (int i = 0; i < CT_DEVICE_KERNEL_COUNT; i++) {
        if ((code = driver.cuModuleGetFunction(&kernels->of[i], module, names[i])) == 0)
            continue;
        (void)driver.cuModuleUnload(module);
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: the driver cannot find the kernel %s: CUDA error %d",
                       names[i], (int)code);
    }
    return 0;
}

static const struct ct_nccl_kernels *find(int device)
{
    const struct ct_nccl_kernels *kernels;

    pthread_mutex_lock(&lock);
    for (kernels = loaded; kernels && kernels->device != device;)
        kernels = kernels->next;
    pthread_mutex_unlock(&lock);
    return kernels;
}

int ct_nccl_kernels_get(const struct ct_nccl_kernels **out, int device,
                        struct ctrun_error *err)
{
    struct ct_nccl_kernels *kernels;
    int rc;

    if ((*out = find(device)))
        return 0;
    if (!(kernels = ct_zalloc(sizeof *kernels)))
        return ct_fail(err, -ENOMEM, "nccl: out of memory");
    if ((rc = load(kernels, err)) <
        0) { /* without the lock: it may wait for the device */
        free(kernels);
        return rc;
    }
    kernels->device = device;
    pthread_mutex_lock(&lock); /* another thread may have added them, too */
    kernels->next = loaded;
    *out = loaded = kernels;
    pthread_mutex_unlock(&lock);
    return 0;
}

static uint64_t count_items(enum ct_device_kernel which,
                            const struct ct_device_args *args)
{
    switch (which) {
#define COUNT(name, items)                                                             \
    case CT_DEVICE_##name: return items;
        CT_DEVICE_KERNELS(COUNT)
#undef COUNT
    default: return 0;
    }
}

int ct_nccl_kernels_launch(const struct ct_nccl_kernels *kernels,
                           enum ct_device_kernel which,
                           const struct ct_device_args *args, cudaStream_t stream,
                           struct ctrun_error *err)
{
    enum {
        BLOCKS_MAX =
            4096 /* a thread continues with the element that many blocks away */
    };
    struct ct_device_args own = *args;
    uint64_t items = count_items(which, args);
    const uint64_t blocks = (items + CT_DEVICE_BLOCK - 1) / CT_DEVICE_BLOCK;
    void *params[] = {&own.a, &own.b, &own.c, &items, &own.n, &own.m, &own.k, &own.by};
    CUresult code;

    if (items == 0)
        return 0;
    code = driver.cuLaunchKernel(kernels->of[which],
                                 (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX),
                                 1, 1, CT_DEVICE_BLOCK, 1, 1, 0, stream, params, NULL);
    return code == 0
               ? 0
               : ct_fail(err, -EIO, "cuda: launch of a kernel: error %d", (int)code);
}
