/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - find a task's GPU, and its share of the GPU, from Slurm's variables */
#include "config.h"

#include "devices.h"
#include "nodelist.h"

#include <stdio.h>
#include <string.h>

/* Variables that can contain the list of devices; the first that is set counts. */
static const char *const list_names[] = {
	"CUDA_VISIBLE_DEVICES",
	"ROCR_VISIBLE_DEVICES",
	"GPU_DEVICE_ORDINAL",
	"ZE_AFFINITY_MASK",
};

enum {
	N_LIST_NAMES = sizeof(list_names) / sizeof(list_names[0]),
	TASKS_MAX = 65536,
	GPUS_MAX = 64
};

/* How Slurm bound the step's tasks to GPUs, parsed from the text of --gpu-bind. */
struct binding {
	enum { BIND_OTHER, BIND_SINGLE, BIND_PER_TASK, BIND_MAP, BIND_MASK, BIND_NONE } kind;
	uint32_t count;	 /* for single:N and per_task:N, the number N */
	bool shards;	 /* in per_task:N, N counts shards instead of GPUs */
	const char *map; /* list with the GPU of each task, such as "0,1,1" */
};

/* --- Slurm's GRES strings -------------------------------------------------------------- */

/*
 * Returns the number in one element of a GRES string, such as "gpu:a100:4(S:0-1)",
 * "gres/gpu:a100=4" or "shard:1K".
 */
static uint64_t gres_count(const char *begin, const char *end)
{
	const char *paren = memchr(begin, '(', (size_t)(end - begin));
	const char *stop = paren ? paren : end, *p = stop;
	uint64_t n, unit = 1;

	if (p > begin && p[-1] == 'K')
		unit = 1024, p--;
	else if (p > begin && p[-1] == 'M')
		unit = 1048576, p--;
	stop = p;
	while (p > begin && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (p == begin || (p[-1] != ':' && p[-1] != '=') ||
	    ddp_parse_number_n(p, (size_t)(stop - p), 0, UINT32_MAX, &n) < 0)
		return 0;
	return n * unit;
}

/* Returns the end of the element at [p]. A comma in parentheses does not end it. */
static const char *gres_end(const char *p)
{
	int depth = 0;

	for (; *p && (depth > 0 || *p != ','); p++)
		depth += (*p == '(') - (*p == ')' && depth > 0);
	return p;
}

/*
 * Whether the element at [p] is of the kind [name]. It can have a prefix, as in "gres:shard:2" or
 * "gres/shard:2".
 */
static bool gres_named(const char *p, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(p, "gres:", 5) == 0 || strncmp(p, "gres/", 5) == 0)
		p += 5;
	return strncmp(p, name, n) == 0 && (p[n] == ':' || p[n] == '=' || p[n] == ',' || !p[n]);
}

/* Returns the sum of the numbers of all elements of the kind [name]. [gres] may be NULL. */
static uint64_t gres_sum(const char *gres, const char *name)
{
	uint64_t sum = 0;

	for (const char *p = gres; p && *p;) {
		const char *end = gres_end(p);

		if (gres_named(p, name))
			sum += gres_count(p, end);
		p = *end ? end + 1 : end;
	}
	return sum;
}

/* --- Devices ---------------------------------------------------------------------------- */

static const char *find_list(char *const *env, const char **name)
{
	for (size_t i = 0; i < N_LIST_NAMES; i++) {
		const char *list = ddp_env_get(env, list_names[i]);

		if (list) {
			*name = list_names[i];
			return list;
		}
	}
	return NULL;
}

/*
 * Count the devices in a list of indices, UUIDs or MIG names. As in CUDA, the first invalid entry
 * ends the list.
 */
static uint32_t count_devices(const char *list)
{
	uint32_t n = 0;

	if (!list || strcmp(list, "NoDevFiles") == 0)
		return 0;
	for (const char *p = list; *p && *p != '-'; n++) {
		p += strcspn(p, ",");
		p += *p == ',';
	}
	return n;
}

static uint32_t count_on_node(const struct ddp_device_facts *facts, const char *step_list)
{
	const char *global = ddp_env_filled(facts->step_env, "SLURM_STEP_GPUS");
	const char *number = ddp_env_get(facts->step_env, "SLURM_GPUS_ON_NODE");
	uint64_t n;

	if (global)
		return count_devices(global);
	if (number && ddp_parse_number(number, 1, UINT32_MAX, &n) == 0)
		return (uint32_t)n;
	return count_devices(step_list);
}

static void read_binding(char *const *env, struct binding *bind)
{
	const char *text = ddp_env_get(env, "SLURMD_TRES_BIND");
	const char *p;
	uint64_t n;

	*bind = (struct binding){.kind = BIND_OTHER};
	if (!text)
		return;
	bind->shards = strstr(text, "shard:") != NULL;
	if (strstr(text, "gpu:none"))
		bind->kind = BIND_NONE;
	else if (strstr(text, "mask_gpu:") || strstr(text, "mask:"))
		bind->kind = BIND_MASK;
	if (bind->kind != BIND_OTHER)
		return;
	if ((p = strstr(text, "per_task:")))
		bind->kind = BIND_PER_TASK;
	else if ((p = strstr(text, "single:")))
		bind->kind = BIND_SINGLE;
	else if ((p = strstr(text, "map_gpu:")) || (p = strstr(text, "map:")))
		bind->kind = BIND_MAP;
	else
		return;
	p = strchr(p, ':') + 1;
	if (bind->kind == BIND_MAP)
		bind->map = p;
	else if (ddp_parse_number_n(p, strspn(p, "0123456789"), 1, UINT32_MAX, &n) == 0)
		bind->count = (uint32_t)n;
	else
		bind->kind = BIND_OTHER;
}

/* Count the numbers i from 0 to [n] - 1 with i mod [modulus] == [remainder]. */
static uint32_t count_congruent(uint32_t n, uint32_t modulus, uint32_t remainder)
{
	return n > remainder ? (n - remainder - 1) / modulus + 1 : 0;
}

/*
 * Get entry [i] of a map such as "0,1*2,3", where "1*2" stands for "1,1". As in Slurm, a map that
 * is too short is repeated. Returns the entry, or -1 if the map is malformed.
 */
static int64_t map_entry(const char *map, uint32_t i)
{
	uint32_t length = 0;

	for (int round = 0; round < 2; round++) {
		uint32_t at = 0, want = round == 0 ? UINT32_MAX : i % length;

		for (const char *p = map;; p++) {
			size_t digits = strspn(p, "0123456789");
			uint64_t number, times = 1;

			if (ddp_parse_number_n(p, digits, 0, UINT32_MAX, &number) < 0)
				return -1;
			p += digits;
			if (*p == '*') {
				digits = strspn(++p, "0123456789");
				if (ddp_parse_number_n(p, digits, 1, 65536, &times) < 0)
					return -1;
				p += digits;
			}
			if (want - at < times)
				return (int64_t)number;
			at += (uint32_t)times;
			if (*p != ',' || at > 1000000)
				break;
		}
		length = at;
	}
	return -1;
}

static uint32_t neighbours_in_map(const char *map, uint32_t local_id, uint32_t local_size)
{
	int64_t mine = map_entry(map, local_id);
	uint32_t n = 0;

	for (uint32_t i = 0; mine >= 0 && i < local_size; i++)
		n += map_entry(map, i) == mine;
	return n;
}

/* Count the tasks on this task's device, if each task sees only the devices that it is bound to. */
static uint32_t neighbours_bound(const struct ddp_device_facts *facts,
				 const struct ddp_devices *devices, const struct binding *bind)
{
	uint32_t size = facts->local_size, gpus = devices->on_node;

	if (bind->kind == BIND_PER_TASK && !bind->shards)
		return 1;
	if (bind->kind == BIND_SINGLE && gpus > 0) {
		/* successive blocks of [count] tasks use successive GPUs */
		uint32_t mine = facts->local_id / bind->count % gpus, n = 0;

		for (uint32_t i = 0; i < size; i++)
			n += i / bind->count % gpus == mine;
		return n;
	}
	if (bind->kind == BIND_MAP)
		return neighbours_in_map(bind->map, facts->local_id, size);
	if (bind->kind == BIND_MASK && size > 1)
		return 0;
	if (gpus > 0 && devices->visible == 1 && size % gpus == 0)
		return size / gpus;
	return size <= gpus && devices->visible == 1 ? 1 : 0;
}

/* Count the tasks that use this task's device, including this task. Returns 0 if unknown. */
static uint32_t neighbours_of(const struct ddp_device_facts *facts, const struct ddp_devices *d,
			      const struct binding *bind)
{
	uint32_t size = facts->local_size;

	/*
	 * With a mask, tasks can see different numbers of devices. A task that sees all devices may
	 * share one of them with a task that sees fewer.
	 */
	if (d->bound || bind->kind == BIND_MASK)
		return neighbours_bound(facts, d, bind);
	if (d->visible == 0)
		return 0;
	return d->visible >= size ? 1
				  : count_congruent(size, d->visible, facts->local_id % d->visible);
}

/* Whether tasks would share a device on a node with [size] tasks. */
static bool is_crowded(const struct ddp_device_facts *facts, const struct ddp_devices *d,
		       uint64_t size, const struct binding *bind)
{
	struct ddp_device_facts each = *facts;

	/* If there are more tasks than devices, tasks share a device with any binding. */
	if (d->visible > 0 && d->on_node > 0 && size > d->on_node)
		return true;
	each.local_size = size < TASKS_MAX ? (uint32_t)size : TASKS_MAX;
	for (each.local_id = 0; each.local_id < each.local_size; each.local_id++)
		if (neighbours_of(&each, d, bind) > 1)
			return true;
	return false;
}

static bool is_first_crowded(const struct ddp_device_facts *facts, const struct ddp_devices *d,
			     const struct binding *bind)
{
	const char *tasks = ddp_env_get(facts->task_env, "SLURM_STEP_TASKS_PER_NODE");
	uint64_t earlier = 0;

	if (facts->local_id != 0 || !is_crowded(facts, d, facts->local_size, bind))
		return false;
	if (facts->node_id == 0)
		return true;
	return tasks && ddp_tasks_most(tasks, facts->node_id, &earlier) == 0 &&
	       !is_crowded(facts, d, earlier, bind);
}

/*
 * Returns the number of GPUs per task, or 0. Slurm up to 23.02 writes "2" or "a100:2". Later
 * releases list all resources of a task: "cpu:2,gres/gpu:a100:2".
 */
static uint32_t gpus_per_task(char *const *env)
{
	const char *text = ddp_env_filled(env, "SLURM_GPUS_PER_TASK");
	const char *colon = text ? strrchr(text, ':') : NULL;
	uint64_t n = 0;

	if (ddp_parse_number(colon ? colon + 1 : text, 1, UINT32_MAX, &n) < 0)
		n = gres_sum(ddp_env_filled(env, "SLURM_TRES_PER_TASK"), "gpu");
	return n <= UINT32_MAX ? (uint32_t)n : 0;
}

/*
 * Whether tasks leave GPUs of this node unused. Each task is assumed to use one GPU, unless Slurm
 * bound it to several. Returns false for a step with shards, since Slurm chooses their GPUs.
 */
static bool is_idle(const struct ddp_device_facts *facts, const struct ddp_devices *d)
{
	return d->visible > 0 && facts->local_size < d->on_node && !(d->bound && d->visible > 1) &&
	       gpus_per_task(facts->task_env) <= 1 &&
	       !ddp_env_get(facts->step_env, "SLURM_SHARDS_ON_NODE");
}

static bool is_first_idle(const struct ddp_device_facts *facts, const struct ddp_devices *d)
{
	const char *tasks = ddp_env_get(facts->task_env, "SLURM_STEP_TASKS_PER_NODE");

	if (!d->idle || facts->local_id != 0 || facts->local_size < 2)
		return false;
	return facts->node_id == 0 ||
	       (tasks && !ddp_tasks_within(tasks, facts->node_id, 2, d->on_node));
}

static void choose_device(const struct ddp_device_facts *facts, struct ddp_devices *d,
			  const struct binding *bind)
{
	uint32_t id = facts->local_id, size = facts->local_size;
	uint32_t each = gpus_per_task(facts->task_env);

	d->local_rank = id;
	if (d->visible == 0) {
		d->device = -1;
	} else if (d->visible == 1 || (d->bound && bind->kind == BIND_PER_TASK)) {
		d->device = 0;
		d->local_rank = 0;
	} else if (!d->bound && each > 1 && (uint64_t)each * size <= d->visible) {
		d->device = (int64_t)id * each;
	} else if (d->visible >= size) {
		d->device = id;
	} else {
		d->device = id % d->visible;
		d->local_rank = id % d->visible;
		d->wraps = true;
	}
	d->neighbours = neighbours_of(facts, d, bind);
	if (facts->mode == DDP_LOCAL_RANK_TASK)
		d->local_rank = id;
	else if (facts->mode == DDP_LOCAL_RANK_DEVICE && d->device >= 0)
		d->local_rank = (uint32_t)d->device;
}

static void set_share(struct ddp_devices *d, uint64_t num, uint64_t den)
{
	d->share_num = num < den ? num : den;
	d->share_den = den;
}

/*
 * Set the task's share of its GPU. In most cases the step, not the task, has shards: the share is
 * the step's part of the GPU, divided by the number of tasks on the GPU.
 */
static void decide_share(const struct ddp_device_facts *facts, struct ddp_devices *d,
			 const struct binding *bind)
{
	const char *text = ddp_env_get(facts->step_env, "SLURM_SHARDS_ON_NODE");
	uint64_t shards, capacity = facts->shards_per_gpu;

	d->share_reason = DDP_SHARE_KNOWN;
	if (d->visible == 0) {
		d->share_reason = DDP_SHARE_NO_DEVICE;
	} else if (ddp_parse_number(text, 1, UINT32_MAX, &shards) < 0) {
		if (d->neighbours == 0)
			d->share_reason = DDP_SHARE_NO_NEIGHBOURS;
		else
			set_share(d, 1, d->neighbours);
	} else if (bind->kind == BIND_PER_TASK && bind->shards) {
		/* In this case each task has shards of its GPU, or of several GPUs. */
		if (capacity == 0)
			d->share_reason = DDP_SHARE_NO_CAPACITY;
		else if (d->visible > 1)
			d->share_reason = DDP_SHARE_NO_PARTS;
		else
			set_share(d, bind->count, capacity);
	} else if (capacity == 0) {
		d->share_reason = DDP_SHARE_NO_CAPACITY;
	} else if (d->on_node == 0 || (d->on_node > 1 && shards < capacity * d->on_node)) {
		/* Since Slurm 23.11 a step may have one shard of a GPU and four of another. */
		d->share_reason = DDP_SHARE_NO_PARTS;
	} else if (d->neighbours == 0) {
		d->share_reason = DDP_SHARE_NO_NEIGHBOURS;
	} else {
		/*
		 * If the administrator's number of shards per GPU is too small, the step's part
		 * would be more than the GPU. So limit it.
		 */
		set_share(d, shards < capacity ? shards : capacity, capacity * d->neighbours);
	}
}

void ddp_devices_decide(const struct ddp_device_facts *facts, struct ddp_devices *devices)
{
	const char *step_name = NULL, *task_name = NULL;
	const char *step_list = find_list(facts->step_env, &step_name);
	const char *task_list = find_list(facts->task_env, &task_name);
	struct binding bind;

	read_binding(facts->task_env, &bind);
	*devices = (struct ddp_devices){.device = -1};
	if (!task_list && step_list &&
	    (bind.kind == BIND_NONE || ddp_env_get(facts->step_env, "SLURM_SHARDS_ON_NODE"))) {
		/*
		 * Restore the list that Slurm removed: Slurm removes it for shards, which have no
		 * binding, and before 23.11 also for --gpu-bind=none.
		 */
		devices->restore_name = step_name;
		devices->restore_value = step_list;
		task_list = step_list;
	}
	devices->visible = count_devices(task_list);
	devices->on_node = count_on_node(facts, step_list);
	devices->unlisted = !task_list && bind.kind == BIND_NONE && devices->on_node > 0;
	devices->bound = task_list && step_list && strcmp(task_list, step_list) != 0;
	choose_device(facts, devices, &bind);
	devices->gpus = ddp_env_filled(facts->step_env, "SLURM_STEP_GPUS");
	if (!devices->gpus)
		devices->gpus = step_list ? step_list : "";
	devices->crowd_first = is_first_crowded(facts, devices, &bind);
	devices->idle = is_idle(facts, devices);
	devices->idle_first = is_first_idle(facts, devices);
	decide_share(facts, devices, &bind);
}

int ddp_share_print(const struct ddp_devices *devices, char *buf, size_t size)
{
	uint64_t millionths;
	char *end;

	if (devices->share_den == 0)
		return -1;
	if (devices->share_num >= devices->share_den)
		return ddp_format(buf, size, "1");
	millionths = devices->share_num * 1000000 / devices->share_den;
	if (ddp_format(buf, size, "0.%06llu", (unsigned long long)(millionths ? millionths : 1)) <
	    0)
		return -1;
	for (end = buf + strlen(buf); end[-1] == '0'; end--)
		end[-1] = '\0';
	return 0;
}

uint32_t ddp_gres_shards_per_gpu(const char *gres)
{
	uint64_t gpus = gres_sum(gres, "gpu"), shards = gres_sum(gres, "shard");

	if (gpus == 0 || shards == 0 || shards % gpus != 0 || shards / gpus > UINT32_MAX)
		return 0;
	return (uint32_t)(shards / gpus);
}

bool ddp_gres_has_shards(const char *gres)
{
	for (const char *p = gres; p && *p;) {
		const char *end = gres_end(p);

		if (gres_named(p, "shard"))
			return true;
		p = *end ? end + 1 : end;
	}
	return false;
}
