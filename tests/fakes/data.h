/* The data file of a fake library: found beside the library or by ACCELSHARE_FAKE_CARDS, read anew at every call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64
typedef struct { char line[MOST][1024]; int lines; char init[16]; char hang[64]; char crash[64]; } data_t;

static void beside(const char *name, char *path, size_t size) {
    const char *named = getenv("ACCELSHARE_FAKE_CARDS");
    Dl_info self;
    if (named) snprintf(path, size, "%s", named);
    else if (dladdr((void *)beside, &self)) snprintf(path, size, "%s", self.dli_fname);
    char *slash = strrchr(path, '/');
    if (named && !strcmp(name, "cards")) return;
    snprintf(slash ? slash + 1 : path, 256, "%s", name);
}

/* Hangs or crashes here, if this is the function that the data file says it of. */
static data_t *look(const char *function, data_t *data) {
    char path[4096] = "", line[1024];
    beside("cards", path, sizeof path);
    memset(data, 0, sizeof *data);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "init=", 5)) snprintf(data->init, sizeof data->init, "%s", line + 5);
        if (!strncmp(line, "hang=", 5)) snprintf(data->hang, sizeof data->hang, "%s", line + 5);
        if (!strncmp(line, "crash=", 6)) snprintf(data->crash, sizeof data->crash, "%s", line + 6);
        if (!strncmp(line, "card ", 5) && data->lines < MOST) strcpy(data->line[data->lines++], line + 5);
    }
    if (file) fclose(file);
    if (!strcmp(data->crash, function)) *(volatile int *)0 = 1;
    if (!strcmp(data->hang, function)) for (;;) pause();
    return data;
}

/* The value of `key` in `index=0, name=Tesla T4`, or the given one. */
static const char *value(const char *line, const char *key, const char *otherwise, char *into, size_t size) {
    size_t length = strlen(key);
    while (*line) {
        while (*line == ' ' || *line == ',') line++;
        if (!strncmp(line, key, length) && line[length] == '=') {
            const char *start = line + length + 1;
            snprintf(into, size, "%.*s", (int)strcspn(start, ","), start);
            return into;
        }
        line += strcspn(line, ",");
    }
    snprintf(into, size, "%s", otherwise);
    return into;
}

static long number(const char *line, const char *key, long otherwise) {
    char text[64];
    value(line, key, "", text, sizeof text);
    return *text ? atol(text) : otherwise;
}

static void place(const char *line, unsigned int *part) {
    char text[64];
    value(line, "pci", "0000:00:00.0", text, sizeof text);
    sscanf(text, "%x:%x:%x.%x", &part[0], &part[1], &part[2], &part[3]);
}
