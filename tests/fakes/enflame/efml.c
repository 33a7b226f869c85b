/* libefml.so as far as the driver asks it: the first API, or with -DNEWER the one modelled on NVML. */
#include "../data.h"

static int opened;

#define ASK data_t data; look(__func__, &data); if (opened <= 0) return 1;
#define CARD(position) if ((int)(position) < 0 || (int)(position) >= data.lines) return 2; const char *card = data.line[position]; \
    if (number(card, "code", 0)) return (int)number(card, "code", 0);

#ifdef NEWER
typedef void *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int domain, bus, device, function, id, subsystem; char bus_id[32]; } pci_t;
#define ASK_CARD ASK CARD((intptr_t)device - 1)

int efmlInit_v2(void) {
    data_t data;
    look(__func__, &data);
    int code = *data.init ? atoi(data.init) : 0;
    if (!code) opened++;
    return code;
}
int efmlShutdown(void) { opened--; return 0; }
const char *efmlErrorString(int code) { return code == 15 ? "GCU is lost" : "Unknown Error"; }
int efmlDeviceGetCount_v2(unsigned int *count) { ASK *count = data.lines; return 0; }
int efmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device) { ASK *device = (device_t)(intptr_t)(index + 1); return 0; }
int efmlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
    ASK_CARD
    memory->total = memory->free = (unsigned long long)number(card, "memory_mib", 0) << 20;
    memory->used = (unsigned long long)number(card, "used_mib", 0) << 20;
    return 0;
}
int efmlDeviceGetName(device_t device, char *text, unsigned int size) { ASK_CARD value(card, "name", "", text, size); return 0; }
int efmlDeviceGetUUID(device_t device, char *text, unsigned int size) { ASK_CARD value(card, "uuid", "", text, size); return 0; }
int efmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
    ASK_CARD
    memset(pci, 0, sizeof *pci);
    place(card, &pci->domain);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%04x:%02x:%02x.%u", pci->domain, pci->bus, pci->device, pci->function);
    return 0;
}
#else
typedef struct { char name[128]; uint32_t vendor, id, domain, bus, device, function, logic; } info_t;
typedef struct { uint64_t total; uint32_t used_mib; } memory_t;
#define ASK_CARD ASK CARD(index)

int EfmlInit(bool no_driver) {
    data_t data;
    look(__func__, &data);
    (void)no_driver;
    int code = *data.init ? atoi(data.init) : 0;
    if (!code) opened = 1;
    return code;
}
void EfmlShutdown(void) { opened = 0; } /* not counted: a second user must cope */
int EfmlErrorString(int code, char *text) { strcpy(text, code == 6 ? "driver not loaded" : "failed"); return 0; }
int EfmlGetDevCount(uint32_t *count) { ASK *count = (uint32_t)data.lines; return 0; }
int EfmlGetDevInfo(uint32_t index, info_t *info) {
    ASK_CARD
    memset(info, 0, sizeof *info);
    place(card, &info->domain);
    info->logic = index;
    return 0;
}
int EfmlGetDevMem(uint32_t index, memory_t *memory) {
    ASK_CARD
    memory->total = (uint64_t)number(card, "memory_mib", 0) << 20;
    memory->used_mib = (uint32_t)number(card, "used_mib", 0);
    return 0;
}
int EfmlGetDevIsHealth(uint32_t index, bool *healthy) { ASK_CARD *healthy = number(card, "health", 1) != 0; return 0; }
int EfmlGetDevName(uint32_t index, char *text) { ASK_CARD value(card, "name", "", text, 128); return 0; }
int EfmlGetDevUuid(uint32_t index, char *text) { ASK_CARD value(card, "uuid", "", text, 128); return 0; }
int EfmlGetDevSn(uint32_t index, char *text) { ASK_CARD value(card, "sn", "", text, 128); return 0; }
#endif
