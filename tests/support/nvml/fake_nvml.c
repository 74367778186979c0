/* The part of NVIDIA's management library that the agent uses, for machines without a GPU.
 * The file named by FAKE_NVML_STATE has one line a device: uuid, minor, model, MiB, error, milliseconds to hang, pids.
 *   GPU-1 0 H100 81920 0 0 123,456
 * It is read at every call. Error 15 is a lost device, 3 is "not supported". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT __attribute__((visibility("default")))
#define LIMIT 64
typedef struct { char uuid[96]; unsigned minor; char model[96]; unsigned long long mib; int error, hang; char pids[256]; } Device;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
typedef struct { unsigned long long total, free, used; } Memory;

static Device devices[LIMIT];

static int look(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    int count = 0;
    if (!file) return -1;
    while (count < LIMIT) {
        Device *d = &devices[count];
        int got = fscanf(file, "%95s %u %95s %llu %d %d %255s", d->uuid, &d->minor, d->model, &d->mib, &d->error, &d->hang, d->pids);
        if (got != 7) break;
        count++;
    }
    fclose(file);
    return count;
}

static int at(void *handle, Device **found) {
    int count = look();
    long index = (long)handle - 1;
    if (count < 0) return 9;
    if (index < 0 || index >= count) return 2;
    *found = &devices[index];
    if ((*found)->hang) usleep((*found)->hang * 1000);
    return (*found)->error;
}

OUT int nvmlInit_v2(void) { return look() < 0 ? 9 : 0; }
OUT int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
OUT int nvmlShutdown(void) { return 0; }
OUT const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 3 ? "Not Supported" : "Error"; }
OUT int nvmlDeviceGetCount_v2(unsigned *count) { int n = look(); *count = n < 0 ? 0 : n; return n < 0 ? 9 : 0; }
OUT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int count = look();
    if (count < 0 || (int)index >= count) return 2;
    *handle = (void *)(long)(index + 1);
    return 0;
}
OUT int nvmlDeviceGetUUID(void *h, char *text, unsigned size) { Device *d; int e = at(h, &d); if (!e) snprintf(text, size, "%s", d->uuid); return e; }
OUT int nvmlDeviceGetName(void *h, char *text, unsigned size) { Device *d; int e = at(h, &d); if (!e) snprintf(text, size, "%s", d->model); return e; }
OUT int nvmlDeviceGetIndex(void *h, unsigned *index) { Device *d; int e = at(h, &d); if (!e) *index = (unsigned)((long)h - 1); return e; }
OUT int nvmlDeviceGetMinorNumber(void *h, unsigned *minor) { Device *d; int e = at(h, &d); if (!e) *minor = d->minor; return e; }
OUT int nvmlDeviceGetMemoryInfo(void *h, Memory *m) { Device *d; int e = at(h, &d); if (!e) { m->total = d->mib << 20; m->free = m->total; m->used = 0; } return e; }

static int processes(void *h, unsigned *count, Process *list) {
    Device *d;
    int e = at(h, &d);
    unsigned room = *count, found = 0;
    char copy[256], *rest = copy, *word;
    if (e) return e;
    snprintf(copy, sizeof copy, "%s", d->pids);
    while ((word = strsep(&rest, ","))) {
        if (!atoi(word)) continue;
        if (found < room) list[found] = (Process){(unsigned)atoi(word), 0, 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    *count = found;
    return found > room ? 7 : 0;
}
OUT int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, Process *list) { return processes(h, count, list); }
OUT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count, Process *list) { (void)list; Device *d; *count = 0; return at(h, &d); }
OUT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, unsigned *count, Process *list) { (void)list; Device *d; *count = 0; return at(h, &d); }
