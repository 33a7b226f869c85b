/* libxpuml.so as far as the driver asks it. A handle is a structure of one pointer, passed by value, as in the header. */
#include "../data.h"

typedef struct { void *handle; } device_t;
typedef struct { unsigned long long page, total, free, used, l3[4], reserved[8]; } memory_t;
typedef struct { unsigned int domain, bus, device, function, id, subsystem; char bus_id[32]; unsigned long long reserved[9]; } pci_t;
typedef struct { int arch, board, model; unsigned int counts[7]; unsigned long long size_mib, l3_mib, reserved[9]; } attributes_t;

static int opened;

#define ASK data_t data; look(__func__, &data); if (opened <= 0) return 1;
#define ASK_CARD ASK const char *card = data.line[(uintptr_t)device.handle - 1]; \
    if (!device.handle || (int)(uintptr_t)device.handle > data.lines) return 2; \
    if (number(card, "code", 0)) return (int)number(card, "code", 0);

int xpumlInit(void) {
    data_t data;
    look(__func__, &data);
    int code = *data.init ? atoi(data.init) : 0;
    if (!code) opened++;
    return code;
}
int xpumlShutdown(void) { opened--; return 0; }
const char *xpumlErrorString(int code) { return code == 15 ? "XPU is lost" : code == 9 ? "Driver Not Loaded" : "Unknown Error"; }
int xpumlDeviceGetCount(unsigned int *count) { ASK *count = data.lines; return 0; }
int xpumlDeviceGetHandleByIndex(unsigned int index, device_t *device) {
    ASK
    if ((int)index >= data.lines) return 2;
    device->handle = (void *)(uintptr_t)(index + 1);
    return 0;
}
int xpumlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
    ASK_CARD
    memset(memory, 0, sizeof *memory);
    memory->total = memory->free = (unsigned long long)number(card, "memory_mib", 0) << 20;
    memory->used = (unsigned long long)number(card, "used_mib", 0) << 20;
    return 0;
}
int xpumlDeviceGetState(device_t device, int *state) { ASK_CARD *state = (int)number(card, "state", 201); return 0; }
int xpumlDeviceGetHostVxpuMode(device_t device, int *mode) { ASK_CARD *mode = (int)number(card, "mode", 0); return 0; }
int xpumlDeviceGetMinorNumber(device_t device, unsigned int *minor) {
    ASK_CARD
    *minor = (unsigned int)number(card, "minor", (long)(uintptr_t)device.handle - 1);
    return 0;
}
int xpumlDeviceGetSerial(device_t device, char *text, unsigned int size) { ASK_CARD value(card, "sn", "", text, size); return 0; }
int xpumlDeviceGetAttributes(device_t device, attributes_t *attributes) {
    ASK_CARD
    memset(attributes, 0, sizeof *attributes);
    attributes->model = (int)number(card, "model", 9999);
    return 0;
}
int xpumlDeviceGetPciInfo(device_t device, pci_t *pci) {
    ASK_CARD
    memset(pci, 0, sizeof *pci);
    place(card, &pci->domain);
    return 0;
}
