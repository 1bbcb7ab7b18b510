/*
 * Measures how fast OpenZFS's own engine (libzpool, called in this process) reads a file of a pool, through
 * its ARC and without. Same arguments, loads and output as the example `cache_speed` of cenote-dataset:
 *
 *   zpool_speed FOLDER POOL DATASET OBJECT FILE_BYTES BLOCK_BYTES LOAD THREADS BYTES SECONDS
 *
 *   hit-seq, hit-rand    the file is read once, then again for SECONDS, BYTES at a time, in order or anywhere
 *   cold-seq             the file is read once, by THREADS threads, each its part
 *   cold-rand            pieces of BYTES, anywhere, for SECONDS; none lies in a block that was read before
 *
 * The prototypes below are those of OpenZFS 2.3, whose headers Debian ships incomplete.
 *
 *   cc -O2 zpool_speed.c -l:libzpool.so.6 -l:libnvpair.so.3 -lpthread
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct nvlist nvlist_t;
typedef struct objset objset_t;
typedef struct {
	char **path;
	int paths;
	const char *poolname;
	uint64_t guid;
	const char *cachefile;
	int can_be_active, scan;
	nvlist_t *policy;
	int do_destroyed, do_all;
} importargs_t;
typedef struct {
	int error, printerr, open_access_error, desc_active;
	char desc[1024];
	const void *ops;
	void *lib;
} libpc_handle_t;

extern const char libzpool_config_ops[];
void kernel_init(int mode);
int zpool_find_config(libpc_handle_t *, const char *, nvlist_t **, importargs_t *);
int spa_import(char *, nvlist_t *, nvlist_t *, uint64_t);
int dmu_objset_own(const char *, int type, int readonly, int decrypt, const void *tag, objset_t **);
int dmu_read(objset_t *, uint64_t object, uint64_t offset, uint64_t size, void *, uint32_t flags);

enum { SPA_MODE_READ = 1, DMU_OST_ZFS = 2, ZFS_IMPORT_SKIP_MMP = 0x20, WARM_BYTES = 1 << 20 };

static objset_t *os;
static uint64_t object, file_bytes, block_bytes, read_bytes, run_ns;
static unsigned threads;
static const char *load;
static _Atomic uint64_t reads, next_block;
static _Atomic int go;

static uint64_t clock_ns(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now_ns(void) {
	return clock_ns(CLOCK_MONOTONIC);
}

static void stop_if(int failed, const char *what) {
	if (failed) {
		fprintf(stderr, "%s: %d\n", what, failed);
		exit(1);
	}
}

static void read_at(uint64_t at, uint64_t bytes, void *buffer) {
	stop_if(dmu_read(os, object, at, bytes, buffer, 0), "dmu_read");
}

/* Block number `index` of a walk that comes to each block once, in no order: a step that shares no factor. */
static uint64_t scattered(uint64_t index) {
	uint64_t blocks = file_bytes / block_bytes;
	return (index * 2654435761u + 12345) % blocks;
}

static void *work(void *arg) {
	uint64_t me = (uintptr_t)arg, mine = 0, random = 88172645463325252ull + me * 7919;
	char *buffer = aligned_alloc(4096, read_bytes);
	memset(buffer, 0, read_bytes);
	while (!go) ;
	uint64_t end = now_ns() + run_ns, part = file_bytes / threads / read_bytes * read_bytes;
	if (strcmp(load, "cold-seq") == 0) {
		for (uint64_t at = me * part; at < (me + 1) * part; at += read_bytes, mine++)
			read_at(at, read_bytes, buffer);
	} else if (strcmp(load, "cold-rand") == 0) {
		uint64_t index;
		while ((index = next_block++) < file_bytes / block_bytes && now_ns() < end) {
			read_at(scattered(index) * block_bytes, read_bytes, buffer);
			mine++;
		}
	} else {
		uint64_t at = me * part;
		do {
			for (int i = 0; i < 64; i++, mine++) {
				random ^= random << 13, random ^= random >> 7, random ^= random << 17;
				if (strcmp(load, "hit-rand") == 0)
					at = random % (file_bytes / read_bytes) * read_bytes;
				read_at(at, read_bytes, buffer);
				at = at + 2 * read_bytes > file_bytes ? 0 : at + read_bytes;
			}
		} while (now_ns() < end);
	}
	reads += mine;
	free(buffer);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 11) {
		fprintf(stderr, "usage: zpool_speed FOLDER POOL DATASET OBJECT FILE_BYTES BLOCK_BYTES "
		    "LOAD THREADS BYTES SECONDS\n");
		return 2;
	}
	char *pool = argv[2];
	object = strtoull(argv[4], NULL, 10);
	file_bytes = strtoull(argv[5], NULL, 10), block_bytes = strtoull(argv[6], NULL, 10);
	load = argv[7], threads = atoi(argv[8]), read_bytes = strtoull(argv[9], NULL, 10);
	run_ns = strtoull(argv[10], NULL, 10) * 1000000000ull;

	kernel_init(SPA_MODE_READ);
	libpc_handle_t handle = { .printerr = 1, .ops = libzpool_config_ops };
	importargs_t args = { .path = &argv[1], .paths = 1, .poolname = pool, .can_be_active = 1 };
	nvlist_t *config = NULL;
	stop_if(zpool_find_config(&handle, pool, &config, &args), "zpool_find_config");
	stop_if(spa_import(pool, config, NULL, ZFS_IMPORT_SKIP_MMP), "spa_import");
	stop_if(dmu_objset_own(argv[3], DMU_OST_ZFS, 1, 0, "zpool_speed", &os), "dmu_objset_own");

	if (strncmp(load, "hit", 3) == 0) {
		char *buffer = malloc(WARM_BYTES);
		for (uint64_t at = 0; at < file_bytes; at += WARM_BYTES)
			read_at(at, WARM_BYTES, buffer);
	}
	pthread_t ids[64];
	for (uintptr_t i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, work, (void *)i);
	uint64_t start = now_ns(), used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	go = 1;
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	double seconds = (now_ns() - start) / 1e9;
	uint64_t cost = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used) / (reads ? reads : 1);
	printf("%s %u %lu  %.0f reads/s %.0f MB/s %lu ns\n", load, threads, read_bytes, reads / seconds,
	    reads / seconds * read_bytes / 1e6, cost);
	fflush(stdout);
	_exit(0);
}
