/* SPDX-License-Identifier: Apache-2.0 */
/* The text of template.py. */
#ifndef AGENT_PROCESS_TEMPLATE_SOURCE_H
#define AGENT_PROCESS_TEMPLATE_SOURCE_H

extern const char template_source[];

#endif
