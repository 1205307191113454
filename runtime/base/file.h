/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - read whole files, and replace them atomically */
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
 * Replace the content of [path] by [parts]: write a temporary file beside [path], sync it if [sync]
 * is true, rename it, and sync the directory. The file's mode is [mode], or 0600 if [mode] is 0,
 * less the umask. If [path] is a symbolic link, its target is replaced. The function refuses a
 * device, FIFO or socket, and a link to the file to which stdout or stderr writes. On failure the
 * temporary file is removed, and [path] is unchanged unless only the sync of the directory failed.
 * Returns 0, or DDP_ERR_FILE with a text that names the path.
 */
int ddp_file_write(const char *path, const struct iovec *parts, int count, unsigned mode, bool sync,
		   struct ddp_error *error);

/* Like ddp_file_write(), but writes file [name] in [directory], with mode 0600 and without sync. */
int ddp_file_write_text(const char *directory, const char *name, const struct ddp_text *text,
			struct ddp_error *error);

/*
 * Returns whether [suffix], the end of a file's name, marks a temporary file of ddp_file_write().
 * Sets [dead] to true if the process that wrote the file has certainly ended. For processes on
 * other nodes or in other containers, this is unknown, and [dead] is false.
 */
bool ddp_file_is_temporary(const char *suffix, bool *dead);

/*
 * Returns which descriptor, stdout or stderr, is open on the file with properties [info]; or -1 if
 * neither is.
 */
int ddp_file_output(const struct stat *info);

/*
 * Check early whether ddp_file_write() would refuse [path] because of a file that exists there.
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
 * Read all of [path], at most [limit] bytes, into memory that the caller frees. After the data, a
 * zero byte is stored, which [size] does not count.
 * Returns 0; 1 if the file does not exist (ENOENT or ESTALE); DDP_ERR_FILE; DDP_ERR_FORMAT if the
 * file is larger or not a plain file; DDP_ERR_MEMORY.
 */
int ddp_file_read(const char *path, size_t limit, char **data, size_t *size,
		  struct ddp_error *error);

/*
 * Try to modify directory [path] by creating and removing [name] in it. An NFS client may keep an
 * old listing of the directory until the directory changes again, if the client uses NFSv3 or the
 * server has coarse timestamps. Such a listing misses files that were created within one tick of
 * the server's clock.
 */
void ddp_file_change_directory(const char *path, const char *name);

/*
 * Create directory [path] and its missing parents, with [mode] less the umask. Sync the parents of
 * new directories.
 * Returns 0, also if [path] exists, or DDP_ERR_FILE.
 */
int ddp_file_mkdirs(const char *path, unsigned mode, struct ddp_error *error);

/*
 * Open /dev/null read-only for each standard stream that is closed, so that no file that is opened
 * later becomes stdout. A write to such a stream fails with EBADF, as a write to a closed stream
 * does. Call this at program start.
 */
void ddp_stdio_open(void);

/*
 * Flush stdout at the end of [program]. If output was lost, print a message on stderr.
 * Returns 0, or -1 if output was lost.
 */
int ddp_stdio_flush(const char *program);

#endif /* DDP_BASE_FILE_H */
