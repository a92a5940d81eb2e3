/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, the driver's own library, loaded when needed. It makes no CUDA context, so it uses no GPU
 * memory and disturbs no worker. Functions and structs are those of nvml.h; 0 is success. */
#pragma once

#include <stddef.h>

enum {
    NVML_TEXT_MAX = 96,
    NVML_TIMEOUT = 10,  /* nvmlReturn_t */
    NVML_CLOCK_SM = 1,  /* nvmlClockType_t */
    NVML_EVENT_XID = 8, /* nvmlEventTypeXidCriticalError */
};

struct nvml_event { /* nvmlEventData_t, version 2 */
    void *device;
    unsigned long long kind;
    unsigned long long data; /* the number of the Xid error */
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvml_pci { /* nvmlPciInfo_t, version 3 */
    char legacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    char text[32];
};

struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct nvml_process { /* nvmlProcessInfo_t of version 2 and 3 */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int rc);
    int (*driver_version)(char *version, unsigned size);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **device);
    int (*by_uuid)(const char *uuid, void **device);
    int (*parent)(void *mig, void **device); /* NULL: the driver is older than MIG */
    int (*name)(void *device, char *name, unsigned size);
    int (*memory)(void *device, struct nvml_memory *memory);
    /* NULL: the driver is older than 510. *count: in: size of list, out: number of processes. */
    int (*processes)(void *device, unsigned *count, struct nvml_process *list);
    int (*pci)(void *device, struct nvml_pci *out);
    int (*uuid)(void *device, char *text, unsigned size);
    /* Each of these may be NULL: an older driver. */
    int (*clock)(void *device, unsigned kind, unsigned *mhz);
    int (*max_clock)(void *device, unsigned kind, unsigned *mhz);
    int (*slow_reasons)(void *device,
                        unsigned long long *bits); /* nvmlClocksEventReasons */
    int (*create_events)(void **set);
    int (*register_events)(void *device, unsigned long long kinds, void *set);
    int (*wait_event)(void *set, struct nvml_event *out, unsigned timeout_ms);
};

/* Loads and initialises NVML. 0: call nvml_close(). -ENOENT: no usable NVML. A number above 0:
 * NVML's own error, with its text in why[size]. */
int nvml_open(struct nvml *nvml, char *why, size_t size);
void nvml_close(struct nvml *nvml);
