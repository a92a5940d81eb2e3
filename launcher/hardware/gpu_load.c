/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/gpu_load.h"

#include <string.h>

enum {
    EVENTS_MAX =
        64 /* errors read at a time: a broken GPU may report more and more of them */
};

static void *find_device(const struct nvml *nvml, const char *uuid)
{
    char text[NVML_TEXT_MAX];
    unsigned count = 0;
    void *device;

    (void)nvml->count(&count);
    for (unsigned i = 0; i < count; i++)
        if (nvml->by_index(i, &device) == 0 &&
            nvml->uuid(device, text, sizeof text) == 0 && strcmp(text, uuid) == 0)
            return device;
    return NULL;
}

void gpu_load_begin(struct gpu_load *load, const struct nvml *nvml,
                    const struct gpus *gpus)
{
    *load = (struct gpu_load){.count = gpus->count};
    if (!nvml->create_events || !nvml->register_events || !nvml->wait_event ||
        nvml->create_events(&load->events) != 0)
        load->events = NULL;
    for (int i = 0; i < load->count; i++) {
        struct gpu_load_of *of = &load->list[i];

        of->device = find_device(nvml, gpus->uuid[i]);
        of->reports_xid = of->device && load->events &&
                          nvml->register_events(of->device, NVML_EVENT_XID,
                                                load->events) == 0;
    }
}

static void take_xid(struct gpu_load *load, const struct nvml_event *event)
{
    for (int i = 0; i < load->count; i++)
        if (load->list[i].device == event->device && event->kind & NVML_EVENT_XID)
            load->list[i].xid = event->data;
}

/* Reads the Xid errors since the last call. If the event set fails, no GPU reports errors any
 * more. */
static void read_xids(struct gpu_load *load, const struct nvml *nvml)
{
    struct nvml_event event;
    int rc = 0;

    for (int i = 0; load->events && rc == 0 && i < EVENTS_MAX; i++)
        if ((rc = nvml->wait_event(load->events, &event, 0)) == 0)
            take_xid(load, &event);
    for (int i = 0; rc != 0 && rc != NVML_TIMEOUT && i < load->count; i++)
        load->list[i].reports_xid = false;
}

static void read_clock(struct gpu_load_of *of, const struct nvml *nvml)
{
    unsigned long long slow = 0;

    of->mhz = of->max_mhz = 0;
    if (!nvml->clock || !nvml->max_clock ||
        nvml->clock(of->device, NVML_CLOCK_SM, &of->mhz) != 0 ||
        nvml->max_clock(of->device, NVML_CLOCK_SM, &of->max_mhz) != 0)
        of->mhz = of->max_mhz = 0;
    if (nvml->slow_reasons && nvml->slow_reasons(of->device, &slow) != 0)
        slow = 0;
    of->slow = (unsigned)slow;
}

void gpu_load_read(struct gpu_load *load, const struct nvml *nvml)
{
    read_xids(load, nvml);
    for (int i = 0; i < load->count; i++)
        if (load->list[i].device)
            read_clock(&load->list[i], nvml);
}
