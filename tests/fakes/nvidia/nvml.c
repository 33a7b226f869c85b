/* libnvidia-ml.so.1 as far as the driver asks it. A handle is the card's position in the data file plus one. */
#include "../data.h"

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };
typedef void *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { device_t device; unsigned long long type, data; unsigned int gi, ci; } event_t;
typedef struct { unsigned int id, scope; long long timestamp, latency; unsigned int type, result; unsigned long long value; } field_t;

static int opened;
static bool registered[MOST];

#define ASK data_t data; look(__func__, &data); if (opened <= 0) return UNINITIALIZED;
#define ASK_CARD ASK const char *card = data.line[(uintptr_t)device - 1]; \
    if (!device || (int)(uintptr_t)device > data.lines) return INVALID; \
    if (number(card, "code", 0)) return (int)number(card, "code", 0);

int nvmlInit_v2(void) {
    data_t data;
    look(__func__, &data);
    int code = *data.init ? atoi(data.init) : OK;
    if (!code) opened++;
    return code;
}
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { if (opened <= 0) return UNINITIALIZED; opened--; return OK; }
const char *nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : code == 3 ? "Not Supported" : code == 6 ? "Not Found"
        : code == 1 ? "Uninitialized" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned int *count) { ASK *count = data.lines; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device) {
    ASK
    for (int i = 0; i < data.lines; i++)
        if ((unsigned int)number(data.line[i], "index", i) == index) {
            *device = (device_t)(uintptr_t)(i + 1);
            return (int)number(data.line[i], "code", 0);
        }
    return INVALID;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    ASK
    char text[128];
    for (int i = 0; i < data.lines; i++)
        if (!strcmp(value(data.line[i], "uuid", "", text, sizeof text), uuid)) {
            *device = (device_t)(uintptr_t)(i + 1);
            return (int)number(data.line[i], "code", 0);
        }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(device_t device, char *text, unsigned int size) { ASK_CARD value(card, "uuid", "", text, size); return OK; }
int nvmlDeviceGetName(device_t device, char *text, unsigned int size) { ASK_CARD value(card, "name", "", text, size); return OK; }
int nvmlDeviceGetMinorNumber(device_t device, unsigned int *minor) {
    ASK_CARD
    *minor = (unsigned int)number(card, "minor", 0);
    return number(card, "minor", -1) < 0 ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
    ASK_CARD
    if (number(card, "memory_mib", 0) < 0) return NOT_SUPPORTED;
    memory->total = (unsigned long long)number(card, "memory_mib", 0) << 20;
    memory->used = (unsigned long long)number(card, "used_mib", 0) << 20;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
    ASK_CARD
    unsigned int part[4] = {0};
    place(card, part);
    memset(pci, 0, sizeof *pci);
    pci->domain = part[0]; pci->bus = part[1]; pci->device = part[2];
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.%u", part[0], part[1], part[2], part[3]);
    return OK;
}
int nvmlDeviceGetMigMode(device_t device, unsigned int *current, unsigned int *pending) {
    ASK_CARD
    *current = *pending = (unsigned int)number(card, "mig", 0);
    return number(card, "mig", -1) < 0 ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields) {
    ASK_CARD
    for (int i = 0; i < count; i++) {
        fields[i].result = number(card, "action", -1) < 0 ? NOT_SUPPORTED : OK;
        fields[i].type = 1;
        fields[i].value = (unsigned long long)number(card, "action", 0);
    }
    return OK;
}

/* Limits of driver 615. One line for each card and cgroup, in the file that ACCELSHARE_FAKE_LIMITS names or in `limits` beside
   the data file; several processes share it. A group without a limit has that of the nearest group above it. */
#ifndef OLD
#include <sys/file.h>
#define UNLIMITED (~0ULL)
typedef struct { char *group; unsigned long long soft, hard; } set_limits_t;
typedef struct { char *group; unsigned long long soft, hard, used; } get_limits_t;
typedef struct { char uuid[128], group[3000]; unsigned long long soft, hard; } limit_t;

static FILE *limits(void) {
    char path[4096] = "";
    const char *named = getenv("ACCELSHARE_FAKE_LIMITS");
    if (named) snprintf(path, sizeof path, "%s", named);
    else beside("limits", path, sizeof path);
    FILE *file = fopen(path, "a+");
    if (file) flock(fileno(file), LOCK_EX);
    return file;
}
int nvmlDeviceSetMemoryLimits_v1(device_t device, set_limits_t *wanted) {
    ASK_CARD
    char uuid[128], kept[65536] = "";
    limit_t limit;
    if (number(card, "mig", 0) > 0) return NOT_SUPPORTED;
    if (number(card, "set_limit", OK)) return (int)number(card, "set_limit", OK);
    value(card, "uuid", "", uuid, sizeof uuid);
    FILE *file = limits();
    if (!file) return 999;
    rewind(file);
    while (fscanf(file, "%127s %2999s %llu %llu\n", limit.uuid, limit.group, &limit.soft, &limit.hard) == 4)
        if (strcmp(limit.uuid, uuid) || strcmp(limit.group, wanted->group))
            snprintf(kept + strlen(kept), sizeof kept - strlen(kept), "%s %s %llu %llu\n", limit.uuid, limit.group, limit.soft, limit.hard);
    if (ftruncate(fileno(file), 0)) return 999;
    fputs(kept, file);
    if (wanted->hard != UNLIMITED) fprintf(file, "%s %s %llu %llu\n", uuid, wanted->group, wanted->soft, wanted->hard);
    fclose(file);
    return OK;
}
int nvmlDeviceGetMemoryLimits_v1(device_t device, get_limits_t *found) {
    ASK_CARD
    char uuid[128];
    limit_t limit;
    size_t nearest = 0;
    value(card, "uuid", "", uuid, sizeof uuid);
    FILE *file = limits();
    if (!file) return 999;
    rewind(file);
    while (fscanf(file, "%127s %2999s %llu %llu\n", limit.uuid, limit.group, &limit.soft, &limit.hard) == 4) {
        size_t length = strlen(limit.group);
        char after = strncmp(limit.group, found->group, length) ? 'x' : found->group[length];
        if (!strcmp(limit.uuid, uuid) && (!after || after == '/') && length > nearest) {
            nearest = length;
            found->soft = limit.soft;
            long shown = number(card, "limit_mib", -1);
            found->hard = shown < 0 ? limit.hard : (unsigned long long)shown << 20;
            found->used = (unsigned long long)number(card, "used_in_group_mib", 0) << 20;
        }
    }
    fclose(file);
    return nearest ? OK : NOT_SUPPORTED;
}
#endif
/* Lines of `processes`: `<uuid> <pid> <MiB, -1: not available> <percent, -1: none> <C, G or C+G>`. */
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { unsigned int pid; unsigned long long timestamp; unsigned int sm, memory, encoder, decoder; } sample_t;
enum { INSUFFICIENT = 7, MOST_PROCESSES = 4096 };
typedef struct { unsigned int pid; long mib, percent; char type[8]; } row_t;
static unsigned int rows_of(const char *card, row_t *rows) {
    char path[4096] = "", line[256], uuid[128], own[128];
    unsigned int count = 0;
    value(card, "uuid", "", own, sizeof own);
    beside("processes", path, sizeof path);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file) && count < MOST_PROCESSES) {
        row_t *row = &rows[count];
        if (sscanf(line, "%127s %u %ld %ld %7s", uuid, &row->pid, &row->mib, &row->percent, row->type) == 5 && !strcmp(uuid, own))
            count++;
    }
    if (file) fclose(file);
    return count;
}
static int list_processes(const char *card, char type, unsigned int *count, process_t *into) {
    static row_t rows[MOST_PROCESSES];
    unsigned int all = rows_of(card, rows), found = 0, room = *count;
    for (unsigned int i = 0; i < all; i++) {
        if (!strchr(rows[i].type, type)) continue;
        if (found < room && into)
            into[found] = (process_t){rows[i].pid, rows[i].mib < 0 ? ~0ULL : (unsigned long long)rows[i].mib << 20, ~0U, ~0U};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned int *count, process_t *into) {
    ASK_CARD
    if (number(card, "processes", 1) == 0) return NOT_SUPPORTED;
    return list_processes(card, 'C', count, into);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(device_t device, unsigned int *count, process_t *into) {
    ASK_CARD
    return list_processes(card, 'G', count, into);
}
int nvmlDeviceGetProcessUtilization(device_t device, sample_t *into, unsigned int *count, unsigned long long last_seen) {
    ASK_CARD (void)last_seen;
    static row_t rows[MOST_PROCESSES];
    unsigned int all = rows_of(card, rows), found = 0, room = into ? *count : 0;
    if (number(card, "utilisation", 1) == 0) return NOT_SUPPORTED;
    for (unsigned int i = 0; i < all; i++) {
        if (rows[i].percent <= 0) continue;
        if (found < room) into[found] = (sample_t){rows[i].pid, last_seen + 1, (unsigned int)rows[i].percent, 0, 0, 0};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT : found ? OK : NOT_FOUND;
}
/* Accounting: `accounting` is 1 where it is on; without that key the driver has none. A process of -1 percent is not accounted. */
typedef struct { unsigned int gpu, memory; unsigned long long most, time_ms, started_us; unsigned int running, reserved[5]; } stats_t;
int nvmlDeviceGetAccountingMode(device_t device, unsigned int *mode) {
    ASK_CARD
    *mode = number(card, "accounting", 0) > 0;
    return number(card, "accounting", -1) < 0 ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetAccountingStats(device_t device, unsigned int pid, stats_t *stats) {
    ASK_CARD
    static row_t rows[MOST_PROCESSES];
    unsigned int all = rows_of(card, rows);
    if (number(card, "accounting", 0) <= 0) return NOT_SUPPORTED;
    for (unsigned int i = 0; i < all; i++)
        if (rows[i].pid == pid && rows[i].percent >= 0) {
            *stats = (stats_t){(unsigned int)rows[i].percent, 0, (unsigned long long)rows[i].mib << 20, 0, 1, 1, {0}};
            return OK;
        }
    return NOT_FOUND;
}
int nvmlEventSetCreate(void **set) { ASK *set = registered; memset(registered, 0, sizeof registered); return OK; }
int nvmlEventSetFree(void *set) { ASK (void)set; return OK; }
int nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types) {
    ASK_CARD
    *types = 0x1f;
    return (int)number(card, "events", OK);
}
int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, void *set) {
    ASK_CARD (void)types; (void)set;
    registered[(uintptr_t)device - 1] = true;
    return OK;
}
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned int timeout_ms) {
    static char queue[8192];
    static size_t at;
    for (unsigned int waited = 0;; waited += 5) {
        ASK (void)set;
        if (!queue[at]) {
            char path[4096], taken[4200];
            beside("xids", path, sizeof path);
            snprintf(taken, sizeof taken, "%s.taken", path);
            at = 0;
            queue[0] = 0;
            if (!rename(path, taken)) {
                FILE *file = fopen(taken, "r");
                size_t size = file ? fread(queue, 1, sizeof queue - 1, file) : 0;
                queue[size] = 0;
                if (file) fclose(file);
            }
        }
        while (queue[at]) {
            char uuid[128] = "", text[128];
            unsigned long long xid = 0;
            sscanf(queue + at, "%127s %llu", uuid, &xid);
            at += strcspn(queue + at, "\n");
            if (queue[at]) at++;
            memset(event, 0, sizeof *event);
            event->type = 8;
            event->data = xid;
            if (!strcmp(uuid, "?")) return OK;
            for (int i = 0; i < data.lines; i++)
                if (registered[i] && !strcmp(value(data.line[i], "uuid", "", text, sizeof text), uuid)) {
                    event->device = (device_t)(uintptr_t)(i + 1);
                    return OK;
                }
        }
        if (waited >= timeout_ms) return TIMEOUT;
        usleep(5000);
    }
}
