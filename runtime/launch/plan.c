/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - decide which variables of a task change, and why */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "format.h"
#include "frameworks.h"
#include "nodelist.h"
#include "plan.h"
#include "starter.h"

const enum ddp_variable ddp_plan_marked[DDP_PLAN_MARKED] = {
	DDP_VAR_RANK,	     DDP_VAR_WORLD_SIZE, DDP_VAR_LOCAL_RANK,
	DDP_VAR_MASTER_PORT, DDP_VAR_PET_NNODES,
};

/* --- Tasks -------------------------------------------------------------------------------- */

static int read_number(char *const *env, const char *name, uint32_t *value,
		       struct ddp_message *message)
{
	const char *text = ddp_env_get(env, name);
	uint64_t number;

	if (!text)
		return ddp_fail(message, "Slurm did not set %s for this task", name);
	if (ddp_parse_number(text, 0, UINT32_MAX, &number) < 0)
		return ddp_fail(message, "%s=%s is not a number", name, text);
	*value = (uint32_t)number;
	return 0;
}

int ddp_task_read(char *const *env, uint32_t local_size, uint32_t first_node, struct ddp_task *task,
		  struct ddp_message *message)
{
	struct ddp_task id = {.local_size = local_size};
	const struct {
		const char *name;
		uint32_t *value;
	} wanted[] = {
		{"SLURM_PROCID", &id.rank},	     {"SLURM_STEP_NUM_TASKS", &id.size},
		{"SLURM_LOCALID", &id.local_rank},   {"SLURM_NODEID", &id.node_id},
		{"SLURM_STEP_NUM_NODES", &id.nodes},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (read_number(env, wanted[i].name, wanted[i].value, message) < 0)
			return -1;
	if (id.rank >= id.size)
		return ddp_fail(message, "SLURM_PROCID=%u is not below SLURM_STEP_NUM_TASKS=%u",
				id.rank, id.size);
	if (id.local_rank >= id.local_size || id.local_size > id.size)
		return ddp_fail(message,
				"SLURM_LOCALID=%u contradicts the number of tasks, which is %u on "
				"this node and %u in the step",
				id.local_rank, id.local_size, id.size);
	if (id.node_id >= id.nodes)
		return ddp_fail(message, "SLURM_NODEID=%u is not below SLURM_STEP_NUM_NODES=%u",
				id.node_id, id.nodes);
	id.node_rank = ddp_node_rank(id.node_id, first_node);
	if (first_node >= id.nodes)
		return ddp_fail(message,
				"rank 0 is on node %u, which is not below SLURM_STEP_NUM_NODES=%u",
				first_node, id.nodes);
	*task = id;
	return 0;
}

/* --- A rank's share of its GPU, for each framework --------------------------------------- */

static bool applies(const struct ddp_facts *facts, enum ddp_framework_when when)
{
	switch (when) {
	case DDP_WHEN_SHARED:
		return true;
	case DDP_WHEN_TORCH:
		return facts->channel->share == DDP_SHARE_TORCH;
	case DDP_WHEN_MPS:
		return facts->mps;
	}
	return false;
}

/* Whether the user has set one of the variables in [names], which are separated by blanks. */
static bool has_users_setting(char *const *env, const char *names)
{
	char name[64];

	for (size_t n; *names; names += n + (names[n] == ' ')) {
		n = strcspn(names, " ");
		if (ddp_format(name, sizeof(name), "%.*s", (int)n, names) == 0 &&
		    ddp_users_value(env, name))
			return true;
	}
	return false;
}

/*
 * Returns this rank's part of [whole]. It is at least 1, because a limit of 0 has different
 * meanings in programs and in MPS.
 */
static unsigned long long part_of(const struct ddp_devices *dev, uint64_t whole)
{
	uint64_t part = whole * dev->share_num / dev->share_den;

	return part ? part : 1;
}

static int print_percent(const struct ddp_devices *dev, char *buf, size_t size)
{
	unsigned long long millionths = part_of(dev, 1000000);
	char *end;

	if (ddp_format(buf, size, "%llu.%04llu", millionths / 10000, millionths % 10000) < 0)
		return -1;
	for (end = buf + strlen(buf); end[-1] == '0'; end--)
		end[-1] = '\0';
	end -= end[-1] == '.';
	return ddp_format(end, size - (size_t)(end - buf), "%%");
}

static int print_setting(const struct ddp_facts *facts, const struct ddp_framework *row, char *buf,
			 size_t size)
{
	const struct ddp_devices *dev = &facts->devices;
	char fraction[32];

	switch (row->form) {
	case DDP_FORM_FRACTION:
		if (ddp_share_print(dev, fraction, sizeof(fraction)) < 0)
			return -1;
		return ddp_format(buf, size, "%s%s", row->text, fraction);
	case DDP_FORM_PERCENT:
		return print_percent(dev, buf, size);
	case DDP_FORM_WORD:
		return ddp_format(buf, size, "%s", row->text);
	case DDP_FORM_THREADS:
		return ddp_format(buf, size, "%llu", part_of(dev, 100));
	case DDP_FORM_MEGABYTES:
		if (facts->gpu_memory == 0 || dev->device < 0)
			return -1;
		return ddp_format(buf, size, "%lld=%lluM", (long long)dev->device,
				  part_of(dev, facts->gpu_memory));
	}
	return -1;
}

/* --- The plan ---------------------------------------------------------------------------- */

struct builder {
	const struct ddp_facts *facts;
	struct ddp_plan *plan;
	bool failed; /* memory ran out, or a change is too long, or there are too many */
};

void ddp_plan_clear(struct ddp_plan *plan)
{
	for (size_t i = 0; i < plan->n_changes; i++)
		free(plan->changes[i].value);
	for (size_t i = 0; i < plan->n_notes; i++)
		free(plan->notes[i].text);
	plan->n_changes = plan->n_notes = 0;
}

const struct ddp_change *ddp_plan_find(const struct ddp_plan *plan, const char *name)
{
	for (size_t i = 0; i < plan->n_changes; i++)
		if (strcmp(plan->changes[i].name, name) == 0)
			return &plan->changes[i];
	return NULL;
}

static void add_change(struct builder *b, const char *name, enum ddp_action action,
		       const char *value, const char *why)
{
	struct ddp_plan *plan = b->plan;
	char *copy = value ? strdup(value) : NULL;

	if (plan->n_changes == DDP_PLAN_CHANGES || (value && !copy)) {
		free(copy);
		b->failed = true;
		return;
	}
	plan->changes[plan->n_changes++] = (struct ddp_change){name, action, copy, why};
}

static void __attribute__((format(printf, 3, 4)))
add_note(struct builder *b, enum ddp_speaker speaker, const char *format, ...)
{
	struct ddp_plan *plan = b->plan;
	char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!text || plan->n_notes == DDP_PLAN_NOTES) {
		free(text);
		b->failed = b->failed || !text;
		return;
	}
	plan->notes[plan->n_notes++] = (struct ddp_note){speaker, text};
}

static void __attribute__((format(printf, 4, 5)))
set(struct builder *b, enum ddp_variable variable, const char *why, const char *format, ...)
{
	char value[3 * DDP_PATH_SIZE];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(value, sizeof(value), format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(value)) {
		b->failed = true;
		return;
	}
	add_change(b, ddp_variable_info(variable)->name, DDP_ACTION_SET, value, why);
}

/* Set a variable, unless the user has set it. A value set by a container counts as the user's. */
static void set_default(struct builder *b, enum ddp_variable variable, const char *why,
			const char *value)
{
	const char *name = ddp_variable_info(variable)->name;
	const char *users = ddp_users_value(b->facts->task_env, name);

	if (users)
		add_change(b, name, DDP_ACTION_KEEP, users, "yours");
	else
		add_change(b, name, DDP_ACTION_SET, value, why);
}

static void set_default_number(struct builder *b, enum ddp_variable variable, const char *why,
			       uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
	set_default(b, variable, why, digits);
}

bool ddp_plan_replaces(char *const *env, const char *name, uint32_t value, struct ddp_message *note)
{
	const char *old = ddp_env_filled(env, name);
	uint64_t number;

	if (!old || ddp_env_get(env, DDP_NAME(DDP_JOB)) ||
	    (ddp_parse_number(old, 0, UINT32_MAX, &number) == 0 && number == value))
		return false;
	ddp_fail(note, "%s=%.100s of your environment is replaced in each task", name, old);
	return true;
}

/* Set a variable of the rank's identity. If this replaces the user's value, print a note. */
static void set_identity(struct builder *b, enum ddp_variable variable, const char *why,
			 uint32_t value)
{
	const char *name = ddp_variable_info(variable)->name;
	struct ddp_message note;

	if (b->facts->task.rank == 0 && ddp_plan_replaces(b->facts->step_env, name, value, &note))
		add_note(b, DDP_SPEAKER_STEP, "%s", note.text);
	set(b, variable, why, "%u", value);
}

static void plan_identity(struct builder *b)
{
	const struct ddp_task *id = &b->facts->task;
	const struct ddp_devices *dev = &b->facts->devices;

	set_identity(b, DDP_VAR_RANK, "SLURM_PROCID", id->rank);
	set_identity(b, DDP_VAR_WORLD_SIZE, "SLURM_STEP_NUM_TASKS", id->size);
	set_identity(b, DDP_VAR_LOCAL_RANK, "local task id or device index", dev->local_rank);
	set_identity(b, DDP_VAR_LOCAL_WORLD_SIZE, "tasks on this node", id->local_size);
	set_identity(b, DDP_VAR_NODE_RANK, "SLURM_NODEID, rank 0's node first", id->node_rank);
	set_identity(b, DDP_VAR_GROUP_RANK, "NODE_RANK", id->node_rank);
	set_identity(b, DDP_VAR_GROUP_WORLD_SIZE, "SLURM_STEP_NUM_NODES", id->nodes);
	set_identity(b, DDP_VAR_ROLE_RANK, "RANK", id->rank);
	set_identity(b, DDP_VAR_ROLE_WORLD_SIZE, "WORLD_SIZE", id->size);
	set(b, DDP_VAR_ROLE_NAME, "torchrun's default", "default");

	set(b, DDP_VAR_DDP_RANK, "RANK", "%u", id->rank);
	set(b, DDP_VAR_DDP_SIZE, "WORLD_SIZE", "%u", id->size);
	set(b, DDP_VAR_DDP_LOCAL_RANK, "SLURM_LOCALID", "%u", id->local_rank);
	set(b, DDP_VAR_DDP_LOCAL_SIZE, "LOCAL_WORLD_SIZE", "%u", id->local_size);
	set(b, DDP_VAR_DDP_NODE_RANK, "NODE_RANK", "%u", id->node_rank);
	if (dev->device >= 0)
		set(b, DDP_VAR_DDP_DEVICE, "index among the visible devices", "%lld",
		    (long long)dev->device);
}

static void plan_endpoint(struct builder *b)
{
	const struct ddp_channel *ch = b->facts->channel;
	struct ddp_endpoint endpoint = ddp_endpoint_choose(ch, b->facts->step_env);
	char text[DDP_NAME_SIZE + 32];

	if (endpoint.address)
		add_change(b, DDP_NAME(MASTER_ADDR), DDP_ACTION_KEEP, endpoint.address, "yours");
	else
		set(b, DDP_VAR_MASTER_ADDR, "rank 0's node", "%s", ch->address);
	if (endpoint.port)
		add_change(b, DDP_NAME(MASTER_PORT), DDP_ACTION_KEEP, endpoint.port, "yours");
	else
		set(b, DDP_VAR_MASTER_PORT, endpoint.from, "%u", endpoint.number);
	if (endpoint.port && strcmp(ch->port_from, "--ddp-port") == 0)
		add_note(b, DDP_SPEAKER_STEP,
			 "MASTER_PORT=%s of your environment is used, and --ddp-port is not. "
			 "Unset MASTER_PORT to use --ddp-port.",
			 endpoint.port);
	if (endpoint.ras) {
		snprintf(text, sizeof(text), "localhost:%u", endpoint.ras);
		set_default(b, DDP_VAR_NCCL_RAS_ADDR, "a port of this step", text);
	}
	if (ch->magic) {
		snprintf(text, sizeof(text), "0x%016llx", (unsigned long long)ch->magic);
		set_default(b, DDP_VAR_NCCL_SOCKET_MAGIC, "random number of this step", text);
	}
}

static const char *planned(const struct builder *b, const char *name)
{
	const struct ddp_change *c = ddp_plan_find(b->plan, name);

	return c && c->value ? c->value : "";
}

/*
 * JAX reads the number of processes from Slurm's variables. Its address must be set, because JAX
 * would compute a port from the job id.
 */
static void plan_jax(struct builder *b)
{
	const char *address = planned(b, DDP_NAME(MASTER_ADDR));
	bool bare = strchr(address, ':') != NULL && *address != '[';
	char text[DDP_NAME_SIZE + 32];

	snprintf(text, sizeof(text), "%s%.255s%s:%.8s", bare ? "[" : "", address, bare ? "]" : "",
		 planned(b, DDP_NAME(MASTER_PORT)));
	set_default(b, DDP_VAR_JAX_COORDINATOR_ADDRESS, "MASTER_ADDR:MASTER_PORT", text);
}

static void plan_step(struct builder *b)
{
	const struct ddp_channel *ch = b->facts->channel;

	set(b, DDP_VAR_DDP_JOB, "cluster.job.step", "%s.%u.%u", ch->cluster, ch->job, ch->step);
	set(b, DDP_VAR_DDP_ATTEMPT, "SLURM_RESTART_COUNT", "%u", ch->attempt);
	if (ch->end_time)
		set(b, DDP_VAR_DDP_END_TIME, "from slurmctld", "%llu",
		    (unsigned long long)ch->end_time);
}

static void plan_rendezvous(struct builder *b)
{
	const struct ddp_facts *f = b->facts;
	const char *directory = f->channel->directory;

	if (!f->directory_seen) {
		if (!*f->directory_problem)
			return;
		add_note(b, DDP_SPEAKER_STEP,
			 "DDP_INIT_METHOD stays unset (env:// works), because there is no "
			 "rendezvous directory: %s",
			 f->directory_problem);
		return;
	}
	set(b, DDP_VAR_DDP_RENDEZVOUS, "made for this step", "%s", directory);
	if (!ddp_path_fits_url(directory)) {
		add_note(b, DDP_SPEAKER_STEP,
			 "%s has '?', '#', '%%' or a line break in it, which a URL cannot contain, "
			 "so DDP_INIT_METHOD stays unset. Choose another directory with "
			 "--ddp-rdzv=DIR.",
			 directory);
		return;
	}
	set(b, DDP_VAR_DDP_INIT_METHOD, "PyTorch's FileStore", "file://%s/%s?rank=%u&world_size=%u",
	    directory, DDP_DIR_STORE, f->task.rank, f->task.size);
	set(b, DDP_VAR_DDP_INIT_FILE, "PyTorch's FileStore", "file://%s/%s", directory,
	    DDP_DIR_STORE);
}

/* Set torchrun's variables, because users often start torchrun with one task per node. */
static void plan_torchrun(struct builder *b)
{
	const struct ddp_task *id = &b->facts->task;
	char endpoint[DDP_NAME_SIZE + 32];

	if (b->facts->channel->standalone)
		return;
	if (id->size > id->nodes) {
		/*
		 * If a script starts torchrun, each task would train a separate world. This value
		 * keeps torchrun from starting.
		 */
		if (!b->facts->channel->launcher_allowed)
			set_default(b, DDP_VAR_PET_NNODES, "torchrun needs one task on each node",
				    DDP_SEVERAL_TASKS);
		return;
	}
	if (id->size != id->nodes || id->local_size != 1)
		return;
	set_default_number(b, DDP_VAR_PET_NNODES, "one task on each node", id->nodes);
	/*
	 * Replace even the user's value. If a job script sets it to SLURM_NODEID, all nodes get
	 * number 0.
	 */
	set(b, DDP_VAR_PET_NODE_RANK, "NODE_RANK", "%u", id->node_rank);
	if (b->facts->devices.visible > 0)
		set_default_number(b, DDP_VAR_PET_NPROC_PER_NODE, "devices that the task sees",
				   b->facts->devices.visible);
	set_default(b, DDP_VAR_PET_MASTER_ADDR, "MASTER_ADDR", planned(b, DDP_NAME(MASTER_ADDR)));
	set_default(b, DDP_VAR_PET_MASTER_PORT, "MASTER_PORT", planned(b, DDP_NAME(MASTER_PORT)));
	set_default(b, DDP_VAR_PET_RDZV_BACKEND, "ranks are fixed", "static");
	snprintf(endpoint, sizeof(endpoint), "%.255s:%.8s", planned(b, DDP_NAME(MASTER_ADDR)),
		 planned(b, DDP_NAME(MASTER_PORT)));
	set_default(b, DDP_VAR_PET_RDZV_ENDPOINT, "MASTER_ADDR:MASTER_PORT", endpoint);
	set_default(b, DDP_VAR_PET_RDZV_ID, "DDP_JOB", planned(b, DDP_NAME(DDP_JOB)));
}

enum { FEW_CPUS = 4, ENOUGH_CPUS = 8 }; /* for a rank with a GPU and its data loaders */

/*
 * With --ddp-verbose: if ranks with GPUs have few CPUs and the node has more than they use,
 * recommend more CPUs.
 */
static void advise_cpus(struct builder *b, uint64_t threads)
{
	const struct ddp_facts *f = b->facts;
	uint64_t each = f->node_cpus / f->task.local_size;

	if (f->channel->verbose && f->devices.device >= 0 && threads < FEW_CPUS && each > threads)
		add_note(b, DDP_SPEAKER_STEP,
			 "%s: each rank with a GPU has %llu CPU%s, of %u on the node. Use "
			 "--cpus-per-task=%llu to give its data loaders more CPUs, if they are "
			 "free.",
			 f->host, (unsigned long long)threads, threads == 1 ? "" : "s",
			 f->node_cpus,
			 (unsigned long long)(each < ENOUGH_CPUS ? each : ENOUGH_CPUS));
}

/*
 * Returns [wanted], or the number of CPUs to which the task is bound if that is less. If the node
 * has more CPUs, SLURM_CPUS_PER_TASK can be the job's value, which tasks inherit. srun of some
 * releases does not inherit --cpus-per-task, and gives each task of the step one CPU.
 */
static uint64_t limit_threads(struct builder *b, uint64_t wanted)
{
	const struct ddp_facts *f = b->facts;

	if (f->cpu_mask == 0 || f->cpu_mask >= wanted)
		return wanted;
	if (f->cpu_mask < f->node_cpus)
		add_note(b, DDP_SPEAKER_STEP,
			 "%s: each task may use %u CPU%s, although SLURM_CPUS_PER_TASK is %llu. If "
			 "this is the job's --cpus-per-task, repeat it as srun "
			 "--cpus-per-task=%llu.",
			 f->host, f->cpu_mask, f->cpu_mask == 1 ? "" : "s",
			 (unsigned long long)wanted, (unsigned long long)wanted);
	return f->cpu_mask;
}

/* Returns how many ranks torchrun starts in this task of [cpus] CPUs; 1 for other programs. */
static uint64_t count_workers(const struct builder *b, uint64_t cpus)
{
	const struct ddp_channel *ch = b->facts->channel;
	const char *option = ch->nproc[0] ? ch->nproc : planned(b, DDP_NAME(PET_NPROC_PER_NODE));
	const char *users = ddp_users_value(b->facts->task_env, DDP_NAME(PET_NPROC_PER_NODE));
	uint64_t visible = b->facts->devices.visible, number;

	if (!ch->torchrun)
		return 1;
	if (!*option && users)
		option = users;
	if (ddp_parse_number(option, 1, UINT32_MAX, &number) == 0)
		return number;
	if (strcmp(option, "cpu") == 0 || (strcmp(option, "auto") == 0 && visible == 0))
		return cpus;
	return *option && visible > 0 ? visible : 1;
}

static void plan_threads(struct builder *b)
{
	const struct ddp_facts *f = b->facts;
	const char *why = "CPUs of this task";
	uint64_t threads = f->cpu_mask, number, workers;

	if (ddp_parse_number(ddp_env_get(f->task_env, "SLURM_CPUS_PER_TASK"), 1, UINT32_MAX,
			     &number) == 0) {
		threads = limit_threads(b, number);
		if (threads == number)
			why = "SLURM_CPUS_PER_TASK";
	} else if (ddp_parse_number(ddp_env_get(f->task_env, "SLURM_CPUS_ON_NODE"), 1, UINT32_MAX,
				    &number) == 0) {
		number /= f->task.local_size;
		if (threads == 0 || number < threads)
			threads = number;
	}
	threads = threads ? threads : 1;
	advise_cpus(b, threads);
	workers = count_workers(b, threads);
	if (workers > 1)
		why = "CPUs of this task, divided among torchrun's ranks";
	set_default_number(b, DDP_VAR_OMP_NUM_THREADS, why,
			   threads > workers ? threads / workers : 1);
}

/*
 * Print a note about GPUs that no task uses. If the node has one task, it may start a process for
 * each GPU. Programs such as torchrun are recognized; calls of torch.multiprocessing.spawn are not.
 * For ddp-info there is no note, because it reports unused GPUs itself.
 */
static void plan_idle(struct builder *b)
{
	const struct ddp_facts *f = b->facts;
	const struct ddp_devices *dev = &f->devices;

	if (dev->idle_first)
		add_note(b, DDP_SPEAKER_NODE,
			 "%s: %u tasks do not use all %u GPUs. Use --ntasks-per-node=%u.", f->host,
			 f->task.local_size, dev->on_node, dev->on_node);
	else if (dev->idle && f->task.local_size == 1 && !f->channel->starts_ranks &&
		 strcmp(f->program, "ddp-info") != 0)
		add_note(b, DDP_SPEAKER_STEP,
			 "%s: 1 task has %u GPUs. Use --ntasks-per-node=%u, unless the task starts "
			 "a process for each GPU, like torchrun.",
			 f->host, dev->on_node, dev->on_node);
}

static void note_unknown_share(struct builder *b)
{
	switch (b->facts->devices.share_reason) {
	case DDP_SHARE_NO_CAPACITY:
		add_note(b, DDP_SPEAKER_STEP,
			 "DDP_SHARE stays unset, because the number of shards of a GPU on %s is "
			 "not known. Ask the administrator for shards_per_gpu=N in plugstack.conf.",
			 b->facts->host);
		break;
	case DDP_SHARE_NO_PARTS:
		add_note(b, DDP_SPEAKER_STEP,
			 "DDP_SHARE stays unset, because Slurm does not say how the step's shards "
			 "on %s are divided among %u GPUs. Set DDP_SHARE, or request at most the "
			 "shards of one GPU.",
			 b->facts->host, b->facts->devices.on_node);
		break;
	case DDP_SHARE_NO_NEIGHBOURS:
		add_note(b, DDP_SPEAKER_STEP,
			 "DDP_SHARE stays unset, because it is not known how many tasks this "
			 "--gpu-bind puts on one GPU");
		break;
	case DDP_SHARE_KNOWN:
	case DDP_SHARE_NO_DEVICE:
		break;
	}
}

/*
 * Set the share, and the variables of frameworks.def unless the task has the whole GPU. Each number
 * is rounded down, so that the ranks of one GPU together get at most the whole, but never to 0. A
 * variable is omitted if the user made its setting through another variable.
 */
static void plan_share(struct builder *b)
{
	static const char *const why[] = {"DDP_SHARE", "--ddp-share=torch", "DDP_SHARE, under MPS"};
	const struct ddp_facts *f = b->facts;
	char share[32], value[64];

	if (f->channel->share == DDP_SHARE_OFF)
		return;
	if (ddp_share_print(&f->devices, share, sizeof(share)) < 0) {
		note_unknown_share(b);
		return;
	}
	set(b, DDP_VAR_DDP_SHARE, "this rank's part of its device", "%s", share);
	for (int i = 0; i < DDP_FRAMEWORK_COUNT && f->devices.share_num < f->devices.share_den;
	     i++) {
		const struct ddp_framework *row = ddp_framework(i);

		if (applies(f, row->when) && !has_users_setting(f->task_env, row->unless) &&
		    print_setting(f, row, value, sizeof(value)) == 0)
			set_default(b, row->variable, why[row->when], value);
	}
}

/*
 * Print a note if ranks share a GPU. NCCL refuses that only after ten seconds, and with an unclear
 * message. Programs linked with libddp do not use NCCL in this case, but the plugin recognizes only
 * those of this project. There is no note if the user has set NCCL's variable for shared GPUs.
 */
static void plan_crowd(struct builder *b)
{
	const struct ddp_facts *f = b->facts;
	const struct ddp_devices *dev = &f->devices;

	if (!dev->crowd_first || ddp_is_ours(f->program) ||
	    ddp_users_value(f->task_env, "NCCL_MULTI_RANK_GPU_ENABLE"))
		return;
	add_note(b, DDP_SPEAKER_NODE,
		 "%s: %u ranks share GPU%s %.100s%s, and NCCL refuses that (\"Duplicate GPU "
		 "detected\"). In PyTorch, use the backend gloo, or NCCL 2.30 or later with "
		 "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0. ddp-train and libddp need "
		 "neither.",
		 f->host, f->task.local_size, strchr(dev->gpus, ',') ? "s" : "", dev->gpus,
		 strchr(dev->gpus, ',') ? ", more than one on a GPU" : "");
}

/*
 * Set torchrun's variable TORCHELASTIC_RUN_ID for Lightning in two cases. In a Slurm step without
 * SLURM_NTASKS_PER_NODE, Lightning fails. In an interactive job, Lightning ignores Slurm and
 * imports mpi4py, whose MPI_Init aborts. Neither happens if Lightning finds this variable.
 */
static void plan_lightning(struct builder *b)
{
	const struct ddp_channel *ch = b->facts->channel;
	char *const *env = b->facts->task_env;
	const char *job_name = ddp_env_get(env, "SLURM_JOB_NAME");
	bool interactive =
		job_name && (strcmp(job_name, "bash") == 0 || strcmp(job_name, "interactive") == 0);
	bool missing = b->facts->task.size > 1 && !ddp_env_get(env, "SLURM_NTASKS_PER_NODE");

	if (missing || interactive)
		set_default(b, DDP_VAR_TORCHELASTIC_RUN_ID,
			    missing ? "SLURM_NTASKS_PER_NODE is missing"
				    : "SLURM_JOB_NAME is that of an interactive job",
			    ch->run && ch->run_id[0] ? ch->run_id : planned(b, DDP_NAME(DDP_JOB)));
}

/*
 * If ddp-run started the step, set the number of the attempt, the heartbeat file, and the paths of
 * failure records.
 */
static void plan_run(struct builder *b)
{
	const struct ddp_facts *f = b->facts;
	const struct ddp_channel *ch = f->channel;
	char path[DDP_PATH_SIZE + 32];

	if (!ch->run)
		return;
	set(b, DDP_VAR_DDP_RESTART, "ddp-run", "%u", ch->restart);
	set_default_number(b, DDP_VAR_TORCHELASTIC_RESTART_COUNT, "ddp-run", ch->restart);
	set_default_number(b, DDP_VAR_TORCHELASTIC_MAX_RESTARTS, "ddp-run", ch->restarts_max);
	if (!f->directory_seen)
		return;
	set(b, DDP_VAR_DDP_HEARTBEAT, "ddp-run reads it", "%s/" DDP_DIR_BEAT "%u", ch->directory,
	    f->task.rank);
	snprintf(path, sizeof(path), "%s/" DDP_DIR_PIPE, ch->directory);
	set_default(b, DDP_VAR_TORCH_NCCL_DEBUG_INFO_PIPE_FILE, "ddp-run requests dumps", path);
	if (!ch->failed[0])
		return;
	snprintf(path, sizeof(path), "%s/" DDP_DIR_ERROR "%u.json", ch->failed, f->task.rank);
	set_default(b, DDP_VAR_TORCHELASTIC_ERROR_FILE, "ddp-run reports it", path);
	snprintf(path, sizeof(path), "%s/" DDP_DIR_DUMP, ch->failed);
	set_default(b, DDP_VAR_TORCH_FR_DUMP_TEMP_FILE, "ddp-run reports it", path);
}

static void plan_devices(struct builder *b)
{
	const struct ddp_devices *dev = &b->facts->devices;
	const struct ddp_task *id = &b->facts->task;
	const char *shards = ddp_env_filled(b->facts->step_env, "SLURM_SHARDS_ON_NODE");
	char gpus[16];

	snprintf(gpus, sizeof(gpus), "%u", dev->on_node);
	if (dev->restore_name)
		add_change(b, dev->restore_name, DDP_ACTION_SET, dev->restore_value,
			   "erased by Slurm for this --gpu-bind");
	if (dev->wraps)
		add_note(b, DDP_SPEAKER_NODE,
			 "%s: %u tasks share %u devices in turn. Use --ntasks-per-node=%u to give "
			 "each task its own device.",
			 b->facts->host, id->local_size, dev->visible, dev->visible);
	if (dev->bound && dev->on_node > 1 && id->local_size > 1)
		add_note(b, DDP_SPEAKER_STEP,
			 "each task sees only its own device, so NVLink and CUDA peer-to-peer "
			 "between tasks of a node can be lost. Use %s%.10s%s to keep them.",
			 shards ? "--gres=shard:" : "--gpus-per-node=", shards ? shards : gpus,
			 shards ? "" : " --gpu-bind=none");
}

static void plan_warnings(struct builder *b)
{
	const char *tasks = ddp_env_get(b->facts->task_env, "SLURM_STEP_TASKS_PER_NODE");

	if (b->facts->task.rank == 0 && tasks && ddp_tasks_uneven(tasks) == 1)
		add_note(b, DDP_SPEAKER_STEP,
			 "the nodes have different numbers of tasks (%s). The variables are "
			 "right, but code that computes a node as rank / LOCAL_WORLD_SIZE is "
			 "wrong.",
			 tasks);
}

/*
 * Unset variables that an outer --ddp step left and that this step does not set, because programs
 * would take them for this step's. Also unset TORCHELASTIC_USE_AGENT_STORE, because with the value
 * True, every rank of env:// would be a client without a server.
 */
static void plan_sweep(struct builder *b)
{
	char *const *env = b->facts->task_env;

	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const struct ddp_variable_info *info = ddp_variable_info((enum ddp_variable)v);

		if (ddp_plan_find(b->plan, info->name) || !ddp_env_get(env, info->name))
			continue;
		if (info->kind == DDP_KIND_OURS || !ddp_users_value(env, info->name))
			add_change(b, info->name, DDP_ACTION_UNSET, NULL, "of another step");
	}
	if (ddp_env_get(env, "TORCHELASTIC_USE_AGENT_STORE"))
		add_change(b, "TORCHELASTIC_USE_AGENT_STORE", DDP_ACTION_UNSET, NULL,
			   "no agent serves this step");
	if (ddp_env_get(env, DDP_CHANNEL_NAME))
		add_change(b, DDP_CHANNEL_NAME, DDP_ACTION_UNSET, NULL, "internal");
}

static bool is_chosen(const char *name)
{
	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const struct ddp_variable_info *info = ddp_variable_info((enum ddp_variable)v);

		if (strcmp(info->name, name) == 0)
			return info->kind == DDP_KIND_POLITE || info->kind == DDP_KIND_TORCHRUN;
	}
	return false;
}

static void plan_ours(struct builder *b)
{
	char list[8192] = "";

	for (size_t i = 0; i < b->plan->n_changes; i++) {
		const struct ddp_change *c = &b->plan->changes[i];

		if (c->action == DDP_ACTION_SET && is_chosen(c->name))
			(void)ddp_list_add(list, sizeof(list), c->name, c->value);
	}
	set(b, DDP_VAR_DDP_OURS, "list of these variables, for steps inside this one", "%s", list);
}

int ddp_plan_make(const struct ddp_facts *facts, struct ddp_plan *plan, struct ddp_message *message)
{
	struct builder b = {.facts = facts, .plan = plan};

	plan->n_changes = plan->n_notes = 0;
	plan_identity(&b);
	plan_endpoint(&b);
	plan_jax(&b);
	plan_step(&b);
	plan_rendezvous(&b);
	plan_run(&b);
	plan_devices(&b);
	plan_share(&b);
	plan_crowd(&b);
	plan_idle(&b);
	plan_torchrun(&b);
	plan_threads(&b);
	plan_lightning(&b);
	plan_warnings(&b);
	plan_ours(&b);
	plan_sweep(&b);
	if (b.failed) {
		ddp_plan_clear(plan);
		return ddp_fail(message, "out of memory");
	}
	return 0;
}
