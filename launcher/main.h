/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun as a function: a static ctrun is all three programs (launcher/entry_all.c). */
#pragma once

/* To be called once, in a process that has done nothing else; returns its exit code. */
int main_ctrun(int argc, char **argv);
