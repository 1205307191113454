/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - whole files, written so that nobody ever sees half of one
 */
#ifndef DDP_BASE_FILE_H
#define DDP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "error.h"

/*
 * Replace the content of [path] by [parts]: write a temporary beside it, with mode 0600 or [mode] less the umask, sync
 * it if [sync], rename it, and sync the directory. A symbolic link stays, and the file that it names is replaced. A
 * device, FIFO or socket is refused, and a link to the file that stdout or stderr writes to. On failure the temporary is removed and [path] is as it was before, unless it was
 * the directory that could not be synced.
 * Returns 0, or DDP_ERR_FILE with a text that names the path.
 */
int ddp_file_write(const char *path, const struct iovec *parts, int count, unsigned mode, bool sync,
		   struct ddp_error *error);

/*
 * Whether [suffix], behind the name of a file, makes it the name of a temporary of ddp_file_write(). Sets [dead] if its
 * writer is known to be gone: a writer on another node or in another container is not known.
 */
bool ddp_file_is_temporary(const char *suffix, bool *dead);

/*
 * Check that ddp_file_write() would not refuse [path] for what is there: before hours are spent on its content.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_file_can_replace(const char *path, struct ddp_error *error);

/*
 * Write all [size] bytes of [data] to [fd]; interrupted and short writes are gone on with.
 * Returns 0, or -1 with errno set.
 */
int ddp_file_write_all(int fd, const char *data, size_t size);

/*
 * Read [size] bytes of [fd] from [offset] on; interrupted and short reads are gone on with.
 * Returns 0, or -1 with errno set: ENODATA where the file ends before.
 */
int ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset);

/*
 * Read all of [path], at most [limit] bytes, into memory that the caller frees; a zero byte
 * that is not counted follows.
 * Returns 0; 1 where there is no such file (ENOENT or ESTALE); DDP_ERR_FILE; DDP_ERR_FORMAT
 * where it is larger; DDP_ERR_MEMORY.
 */
int ddp_file_read(const char *path, size_t limit, char **data, size_t *size,
		  struct ddp_error *error);

/*
 * Change directory [path]: create and remove [name] in it, at best effort. A client of NFSv3, or of a server with coarse
 * times, may keep a listing that misses what was created within a tick of the server's clock, until the directory
 * changes again.
 */
void ddp_file_change_directory(const char *path, const char *name);

/*
 * Make directory [path] and those above it that are missing, with [mode] less the umask, and sync the directories that
 * they are in. Returns 0, also if [path] exists already, or DDP_ERR_FILE.
 */
int ddp_file_mkdirs(const char *path, unsigned mode, struct ddp_error *error);

/*
 * At the start of a program: have /dev/null, opened for reading, in place of each standard stream that is closed, so
 * that no file opened later becomes stdout. Writing there fails with EBADF, as to the closed stream.
 */
void ddp_stdio_open(void);

/*
 * Flush stdout at the end of [program].
 * Returns 0, or -1 after a line on stderr if anything that was printed could not be written.
 */
int ddp_stdio_flush(const char *program);

#endif /* DDP_BASE_FILE_H */
