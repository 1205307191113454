/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - reading and atomically replacing whole files */
#ifndef DDP_BASE_FILE_H
#define DDP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "error.h"
#include "text.h"

/*
 * Replace the content of [path] by [parts]: write a temporary file beside it, with mode 0600 or
 * [mode] less the umask, sync it if [sync], rename it, and sync the directory. For a symbolic link,
 * its target is replaced. A device, FIFO or socket is refused, and a link to the file that stdout
 * or stderr writes to. On failure the temporary file is removed and [path] is unchanged, unless the
 * failure was in syncing the directory.
 * Returns 0, or DDP_ERR_FILE with a text that names the path.
 */
int ddp_file_write(const char *path, const struct iovec *parts, int count, unsigned mode, bool sync,
		   struct ddp_error *error);

/* As ddp_file_write(), for file [name] in [directory], with mode 0600 and without sync. */
int ddp_file_write_text(const char *directory, const char *name, const struct ddp_text *text,
			struct ddp_error *error);

/*
 * Whether [suffix], the end of a file's name, marks a temporary file of ddp_file_write(). Sets
 * [dead] if its writer is known to have ended, which is unknown for other nodes and other
 * containers.
 */
bool ddp_file_is_temporary(const char *suffix, bool *dead);

/* Returns the descriptor, stdout or stderr, that is open on the file of [info]; -1: neither. */
int ddp_file_output(const struct stat *info);

/*
 * Check early that ddp_file_write() will not refuse [path] because of an existing file there.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_file_can_replace(const char *path, struct ddp_error *error);

/*
 * Write all [size] bytes of [data] to [fd], continuing after interrupts and short writes.
 * Returns 0, or -1 with errno set.
 */
int ddp_file_write_all(int fd, const char *data, size_t size);

/*
 * Read [size] bytes of [fd] at [offset], continuing after interrupts and short reads.
 * Returns 0, or -1 with errno set: ENODATA if the file is too short.
 */
int ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset);

/*
 * Read all of [path], at most [limit] bytes, into memory that the caller frees. A zero byte, not
 * counted in [size], follows the data.
 * Returns 0; 1 if the file does not exist (ENOENT or ESTALE); DDP_ERR_FILE; DDP_ERR_FORMAT if it is
 * larger or not a plain file; DDP_ERR_MEMORY.
 */
int ddp_file_read(const char *path, size_t limit, char **data, size_t *size,
		  struct ddp_error *error);

/*
 * Modify directory [path] by creating and removing [name] in it, at best effort. A client of NFSv3,
 * or of a server with coarse timestamps, may keep a listing that misses files created within one
 * tick of the server's clock, until the directory changes again.
 */
void ddp_file_change_directory(const char *path, const char *name);

/*
 * Create directory [path] and its missing parents, with [mode] less the umask, and sync their
 * parent directories.
 * Returns 0, also if [path] exists, or DDP_ERR_FILE.
 */
int ddp_file_mkdirs(const char *path, unsigned mode, struct ddp_error *error);

/*
 * Call at program start: opens /dev/null, read-only, for each closed standard stream, so that no
 * file opened later becomes stdout. Writing to it fails with EBADF, as to the closed stream.
 */
void ddp_stdio_open(void);

/*
 * Flush stdout at the end of [program].
 * Returns 0, or -1 after a message on stderr if any output was lost.
 */
int ddp_stdio_flush(const char *program);

#endif /* DDP_BASE_FILE_H */
