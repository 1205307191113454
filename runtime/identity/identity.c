/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.c - find rank, size, node and device from the variables of srun --ddp, plain srun or
 * torchrun; without such variables the process is a single rank
 *
 * In a batch script, SLURM_PROCID is 0, and SLURM_STEP_ID is unset or, since Slurm 26.05, negative.
 * If a task starts another step or job, that step or job inherits all variables of the task,
 * including those of --ddp.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "contract.h"
#include "variables.h"

/* --- Slurm's job and step ------------------------------------------------------------------ */

/* The plugin sets this variable in srun, and removes it on the node. */
#define STEP_VARIABLE "SLURM_DDP_STEP"

/*
 * Largest number of an ordinary step. Larger numbers are those of batch scripts, interactive shells
 * and the like.
 */
#define LAST_ORDINARY_STEP INT64_C(0xfffffff0)

static const char group_prefix[] = "SLURM_JOB_ID_HET_GROUP_";

static bool is_text(const char *value, const char *text, size_t length)
{
	return value && strlen(value) == length && strncmp(value, text, length) == 0;
}

/* Returns whether [text] is the number of the job, or of a component of a heterogeneous job. */
static bool is_job(char *const *env, const char *text, size_t length)
{
	if (is_text(ddp_variable_get(env, "SLURM_JOB_ID"), text, length))
		return true;
	for (; env && *env; env++) {
		const char *equals = strchr(*env, '=');

		if (strncmp(*env, group_prefix, sizeof(group_prefix) - 1) == 0 && equals &&
		    is_text(equals + 1, text, length))
			return true;
	}
	return false;
}

/*
 * Find "job.step" in [job], the value of DDP_JOB, which has the form "cluster.job.step". Returns
 * its start, or NULL if [job] does not have this form.
 */
static const char *contract_step(const char *job)
{
	const char *dot = strrchr(job, '.');

	if (!dot || dot == job || !dot[1])
		return NULL;
	while (dot > job && dot[-1] != '.')
		dot--;
	return dot > job ? dot : NULL;
}

static enum ddp_contract find_contract_owner(char *const *env)
{
	const char *job = ddp_variable_get(env, DDP_NAME(DDP_JOB));
	const char *step = ddp_variable_get(env, "SLURM_STEP_ID");
	const char *named = job ? contract_step(job) : NULL;
	bool there = ddp_variable_get(env, DDP_NAME(DDP_RANK)) ||
		     ddp_variable_get(env, DDP_NAME(DDP_SIZE));

	if (named && ddp_variable_get(env, "SLURM_JOB_ID")) {
		size_t length = strcspn(named, ".");

		if (!is_job(env, named, length) || (step && strcmp(step, named + length + 1) != 0))
			return DDP_CONTRACT_FOREIGN;
	}
	return there ? DDP_CONTRACT_OURS : DDP_CONTRACT_NONE;
}

/* SLURM_STEP_ID is "-5" in a batch script and "-6" in an interactive step. */
static bool is_negative(const char *text)
{
	int64_t number;

	return text && *text == '-' &&
	       ddp_digits_read(text + 1, strlen(text + 1), UINT32_MAX, &number);
}

/* Set the members in_job, in_step and contract of [view]. */
static int find_step(struct ddp_view *view, struct ddp_error *error)
{
	char *const *env = view->env;
	int64_t step;
	int found;

	view->contract = find_contract_owner(env);
	view->in_job = ddp_variable_get(env, "SLURM_JOB_ID") != NULL;
	view->in_step = false;
	if (!view->in_job ||
	    (!ddp_variable_get(env, "SLURM_PROCID") &&
	     !ddp_variable_get(env, "SLURM_STEP_NUM_TASKS")) ||
	    is_negative(ddp_variable_get(env, "SLURM_STEP_ID")))
		return 0;
	found = ddp_variable_number(env, "SLURM_STEP_ID", UINT32_MAX, &step, error);
	view->in_step = found > 0 && step <= LAST_ORDINARY_STEP;
	return found < 0 ? found : 0;
}

/*
 * Refuse a task if the plugin in srun has prepared it for --ddp, but the plugin on the node has not
 * processed it.
 */
static int check_leftover(const struct ddp_view *view, struct ddp_error *error)
{
	const char *node = ddp_variable_get(view->env, "SLURMD_NODENAME");

	if (!ddp_variable_get(view->env, STEP_VARIABLE) || !view->in_step)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "srun --ddp prepared this step, but the plugin did not run on node "
			     "%.64s (" STEP_VARIABLE
			     " is still set). Install slurm-ddp on that node, check "
			     "that the plugstack.conf there loads ddp.so, or start the "
			     "step with srun --no-ddp.",
			     node ? node : view->around->hostname);
}

/* Returns whether RANK and WORLD_SIZE still have the values that an outer --ddp step set. */
static bool contract_left(const struct ddp_view *view)
{
	int rank = 0, size = 0;

	return view->contract == DDP_CONTRACT_FOREIGN &&
	       ddp_variable_int(view->env, DDP_NAME(DDP_RANK), &rank, NULL) > 0 &&
	       ddp_variable_int(view->env, DDP_NAME(DDP_SIZE), &size, NULL) > 0 &&
	       !ddp_variables_differ(view->env, "RANK", "WORLD_SIZE", rank, size);
}

/* Write "job.step" of this task to [word], with characters that a file name may contain. */
static void format_step(const struct ddp_view *view, char word[static DDP_WORD_SIZE])
{
	const char *job = ddp_variable_get(view->env, "SLURM_JOB_ID");
	const char *step = ddp_variable_get(view->env, "SLURM_STEP_ID");
	char name[256];

	snprintf(name, sizeof(name), "%.100s.%.100s", job ? job : "", step ? step : "");
	ddp_place_word(name, word);
}

/* Returns SLURM_CLUSTER_NAME or, if it is unset, "cluster". The plugin uses the same default. */
static const char *cluster_name(const struct ddp_view *view)
{
	const char *cluster = ddp_variable_get(view->env, "SLURM_CLUSTER_NAME");

	return cluster ? cluster : "cluster";
}

/* If the environment contains the time at which the job ends, store that time in [identity]. */
static int read_end_time(const struct ddp_view *view, struct ddp_identity *identity,
			 struct ddp_error *error)
{
	const char *name =
		view->contract == DDP_CONTRACT_OURS ? DDP_NAME(DDP_END_TIME) : "SLURM_JOB_END_TIME";
	int found = ddp_variable_number(view->env, name, INT64_MAX, &identity->end_time, error);

	return found < 0 ? found : 0;
}

/* --- Under srun --ddp ---------------------------------------------------------------------- */

/*
 * Set the directory of failure records. Its name contains the cluster and the step, because
 * clusters that share a home directory can use the same job numbers.
 */
static int place_step_records(const struct ddp_view *view, const char *cluster, const char *step,
			      struct ddp_identity *id, struct ddp_error *error)
{
	char word[DDP_WORD_SIZE], name[3 * DDP_WORD_SIZE];

	ddp_place_word(cluster, word);
	snprintf(name, sizeof(name), "%s-%s", word, step);
	return ddp_place_records(view, name, id, error);
}

/*
 * Set the job of [id] to the value of DDP_JOB, "cluster.job.step". Set the directory of failure
 * records, whose name contains the job.
 */
static int read_job(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *job = ddp_variable_get(view->env, DDP_NAME(DDP_JOB));
	const char *step = job ? contract_step(job) : NULL;
	char word[DDP_WORD_SIZE], cluster[sizeof(id->job)];

	if (!job || strlen(job) >= sizeof(id->job))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "DDP_JOB%s%.100s %s. Start the program with srun --ddp.",
				     job ? "=" : "", job ? job : "",
				     job ? "is too long" : "is missing");
	strcpy(id->job, job);
	ddp_place_word(step ? step : job, word);
	if (!step)
		return ddp_place_records(view, word, id, error);
	snprintf(cluster, sizeof(cluster), "%.*s", (int)(step - job - 1), job);
	return place_step_records(view, cluster, word, id, error);
}

static int read_directory(const struct ddp_view *view, struct ddp_identity *id,
			  struct ddp_error *error)
{
	const char *directory = ddp_variable_get(view->env, DDP_NAME(DDP_RENDEZVOUS));

	if (!directory)
		return 0;
	if (snprintf(id->directory, sizeof(id->directory), "%s", directory) >=
	    (int)sizeof(id->directory))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "DDP_RENDEZVOUS=%.100s... is too long", directory);
	id->own = true;
	return 0;
}

static int identify_plugin(const struct ddp_view *view, struct ddp_identity *id,
			   struct ddp_error *error)
{
	int status;

	if ((status = ddp_variable_int(view->env, DDP_NAME(DDP_ATTEMPT), &id->attempt, error)) <
		    0 ||
	    (status = ddp_variable_int(view->env, DDP_NAME(DDP_DEVICE), &id->device, error)) < 0 ||
	    (status = ddp_variable_share(view->env, DDP_NAME(DDP_SHARE), &id->share, error)) < 0 ||
	    (status = read_directory(view, id, error)) < 0)
		return status;
	return read_job(view, id, error);
}

/* --- Under a plain srun -------------------------------------------------------------------- */

/* Returns whether the nodes of the step are exactly those of component [index] of the job. */
static bool is_component(char *const *env, int64_t index)
{
	const char *nodes = ddp_variable_get(env, "SLURM_STEP_NODELIST");
	const char *count = ddp_variable_get(env, "SLURM_STEP_NUM_NODES");
	const char *part, *part_count;
	char name[64];

	snprintf(name, sizeof(name), "SLURM_JOB_NODELIST_HET_GROUP_%lld", (long long)index);
	part = ddp_variable_get(env, name);
	snprintf(name, sizeof(name), "SLURM_JOB_NUM_NODES_HET_GROUP_%lld", (long long)index);
	part_count = ddp_variable_get(env, name);
	return nodes && part && count && part_count && strcmp(nodes, part) == 0 &&
	       strcmp(count, part_count) == 0;
}

/*
 * Refuse a step on several components of a heterogeneous job: srun starts each component
 * separately, with its own node numbers. A step on one component is allowed.
 */
static int check_components(const struct ddp_view *view, int size, struct ddp_error *error)
{
	int64_t components = 0;
	int found = ddp_variable_number(view->env, "SLURM_HET_SIZE", INT_MAX, &components, error);

	if (found <= 0 || components < 2 || size < 2)
		return found < 0 ? found : 0;
	for (int64_t i = 0; i < components && i < 128; i++)
		if (is_component(view->env, i))
			return 0;
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"the ranks of a heterogeneous step (SLURM_HET_SIZE=%lld) cannot find each other. "
		"Start the program on all nodes of one component, with --het-group=N.",
		(long long)components);
}

/*
 * Returns the number of tasks on node [index], according to a list such as "2(x3),1". Returns 0 if
 * the list is malformed or has too few nodes.
 */
static int find_tasks(const char *list, int64_t index)
{
	while (*list) {
		size_t digits = strspn(list, "0123456789");
		int64_t tasks, times = 1;

		if (!ddp_digits_read(list, digits, INT_MAX, &tasks))
			return 0;
		list += digits;
		if (strncmp(list, "(x", 2) == 0) {
			digits = strspn(list + 2, "0123456789");
			if (!ddp_digits_read(list + 2, digits, INT_MAX, &times) ||
			    list[2 + digits] != ')')
				return 0;
			list += digits + 3;
		}
		if (index < times)
			return (int)tasks;
		index -= times;
		if (*list && *list++ != ',')
			return 0;
	}
	return 0;
}

/*
 * Returns the number of ranks in a list such as "0,1,4". Returns 0 if the list is malformed or does
 * not contain [rank].
 */
static int count_ranks(const char *list, int rank)
{
	bool found = false;
	int count = 0;

	for (;; list++) {
		size_t digits = strspn(list, "0123456789");
		int64_t number;

		if (!ddp_digits_read(list, digits, INT_MAX, &number))
			return 0;
		found = found || number == rank;
		count++;
		list += digits;
		if (*list != ',')
			break;
	}
	return found && !*list ? count : 0;
}

/*
 * Set the local size. SLURM_GTIDS lists the ranks of this node, and is used if it is set; but
 * programs are advised to unset it. Otherwise SLURM_STEP_TASKS_PER_NODE is used. Its nodes are
 * sorted by name. In some steps SLURM_NODEID, the index in it, counts the nodes in another order.
 */
static int read_local_size(const struct ddp_view *view, struct ddp_identity *id,
			   struct ddp_error *error)
{
	const char *ranks = ddp_variable_get(view->env, "SLURM_GTIDS");
	const char *list = ddp_variable_get(view->env, "SLURM_STEP_TASKS_PER_NODE");

	if (ranks)
		id->local_size = count_ranks(ranks, id->rank);
	else if (id->node_count == 1)
		id->local_size = id->size;
	else
		id->local_size = list ? find_tasks(list, id->node_rank) : 0;
	if (id->local_size > 0)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"%s=%.100s does not contain task %d on node %d. Start the program with srun, or "
		"unset SLURM_STEP_ID to run it alone.",
		ranks ? "SLURM_GTIDS" : "SLURM_STEP_TASKS_PER_NODE",
		ranks  ? ranks
		: list ? list
		       : "",
		id->rank, id->node_rank);
}

/*
 * Set the rendezvous directory under a plain srun. Its name contains srun's port. After slurmctld
 * has lost its state, another step can get the same number, but it has another port.
 */
static int place_srun(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *port = ddp_variable_get(view->env, "SLURM_SRUN_COMM_PORT");
	char cluster[DDP_WORD_SIZE], launcher[DDP_WORD_SIZE], step[DDP_WORD_SIZE], name[256];
	int status;

	format_step(view, step);
	ddp_place_word(cluster_name(view), cluster);
	ddp_place_word(port ? port : "0", launcher);
	snprintf(id->job, sizeof(id->job), "%s.%s", cluster, step);
	status = place_step_records(view, cluster, step, id, error);
	if (status < 0)
		return status;
	snprintf(name, sizeof(name), "srun-%s-%s.%d-%s", cluster, step, id->attempt, launcher);
	return ddp_place_directory(view, name, id, error);
}

static int identify_srun(const struct ddp_view *view, struct ddp_identity *id,
			 struct ddp_error *error)
{
	int status;

	if ((status = check_components(view, id->size, error)) < 0 ||
	    (status = read_local_size(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, "SLURM_RESTART_COUNT", &id->attempt, error)) < 0)
		return status;
	return place_srun(view, id, error);
}

/* --- torchrun, or a launcher that sets the same variables ---------------------------------- */

static bool torchrun_started(const struct ddp_view *view)
{
	char *const *env = view->env;
	int rank = 0, size = 0;

	if (!ddp_variable_get(env, "RANK") || !ddp_variable_get(env, "WORLD_SIZE") ||
	    !ddp_variable_get(env, "TORCHELASTIC_RUN_ID") ||
	    !ddp_variable_get(env, "TORCHELASTIC_RESTART_COUNT"))
		return false;
	if (view->contract == DDP_CONTRACT_NONE)
		return true;
	/*
	 * Both torchrun and --ddp (of this step or an outer one) set these variables. Find out
	 * which of the two set them last. The plugin removes TORCHELASTIC_USE_AGENT_STORE and sets
	 * RANK to DDP_RANK. Old versions of torchrun do not set TORCHELASTIC_USE_AGENT_STORE. Under
	 * ddp-run, the plugin sets the other variables as torchrun does.
	 */
	if (ddp_variable_get(env, "TORCHELASTIC_USE_AGENT_STORE"))
		return true;
	return ddp_variable_int(env, DDP_NAME(DDP_RANK), &rank, NULL) > 0 &&
	       ddp_variable_int(env, DDP_NAME(DDP_SIZE), &size, NULL) > 0 &&
	       ddp_variables_differ(env, "RANK", "WORLD_SIZE", rank, size);
}

/*
 * Returns the local rank in the path of torchrun's error file, DIRECTORY/attempt_N/LOCAL/error.json;
 * -1 if there is no file or its path is another.
 */
static int local_rank_of_file(const struct ddp_view *view)
{
	const char *file = ddp_variable_get(view->env, "TORCHELASTIC_ERROR_FILE");
	const char *attempt = file ? strstr(file, "/attempt_") : NULL;
	int local;

	return attempt && sscanf(attempt, "/attempt_%*d/%d/", &local) == 1 ? local : -1;
}

/*
 * Set the real local rank. With torchrun's option --virtual-local-rank, each worker sees only one
 * device, and its local rank is 0. Since torchrun assigns ranks to nodes in blocks, the real local
 * rank can be computed from the rank and the local size, but only if all nodes have the same number
 * of workers. Therefore the result is used only if the path of the error file contains it, too.
 */
static void undo_virtual(const struct ddp_view *view, struct ddp_identity *id)
{
	if (id->local_rank == 0 && id->local_size > 0 &&
	    id->size / id->local_size == id->node_count &&
	    id->rank / id->local_size == id->node_rank &&
	    id->rank % id->local_size == local_rank_of_file(view))
		id->local_rank = id->rank % id->local_size;
}

/*
 * Returns a hash that distinguishes this world from other worlds on this host. Their run id and
 * port can be equal (by default "none" and 29500). Therefore the hash is computed from the random
 * directory that torchrun created for its workers' errors or, without one, from the parent process.
 */
static uint64_t host_tag(const struct ddp_view *view)
{
	const char *file = ddp_variable_get(view->env, "TORCHELASTIC_ERROR_FILE");
	const char *end = file ? strstr(file, "/attempt_") : NULL;
	uint64_t tag =
		ddp_hash(DDP_HASH_INIT, view->around->hostname, strlen(view->around->hostname));

	if (end)
		return ddp_hash(tag, file, (size_t)(end - file));
	return ddp_hash(tag, &view->around->parent, sizeof(view->around->parent));
}

/*
 * Returns whether no variable of torchrun is set. This is the case if a user starts each rank in a
 * shell, and sets the variables of env:// there.
 */
static bool is_by_hand(const struct ddp_view *view)
{
	static const char prefix[] = "TORCHELASTIC_";

	for (char *const *env = view->env; env && *env; env++)
		if (strncmp(*env, prefix, sizeof(prefix) - 1) == 0)
			return false;
	return true;
}

/*
 * Find a key for ranks that were started by hand. They have no common parent, so the key is what
 * the user set for all of them: DDP_JOB, else MASTER_ADDR and MASTER_PORT. Returns false if neither
 * is set. Also returns false if the world has one rank, which needs no key.
 */
static bool find_key_by_hand(const struct ddp_view *view, const struct ddp_identity *id,
			     char key[static DDP_WORD_SIZE])
{
	const char *job = ddp_variable_get(view->env, DDP_NAME(DDP_JOB));
	const char *address = ddp_variable_get(view->env, DDP_NAME(MASTER_ADDR));
	const char *port = ddp_variable_get(view->env, DDP_NAME(MASTER_PORT));
	char name[512];

	if (id->size == 1 || !is_by_hand(view))
		return false;
	if (job && view->contract != DDP_CONTRACT_FOREIGN) {
		ddp_place_word(job, key);
		return true;
	}
	if (!address || !port)
		return false;
	snprintf(name, sizeof(name), "%.255s-%.32s", address, port);
	ddp_place_word(name, key);
	return true;
}

/*
 * Format the name of torchrun's world: its run id, the address of rank 0 if there are several
 * nodes, and the port. Two worlds with one working directory can have the same run id and port (by
 * default "none" and 29500), but not if their ranks 0 are on the same node.
 */
static void name_torchrun(const struct ddp_view *view, const struct ddp_identity *id,
			  const char *run, char name[static 3 * DDP_WORD_SIZE])
{
	const char *address = ddp_variable_get(view->env, DDP_NAME(MASTER_ADDR));
	const char *port = ddp_variable_get(view->env, DDP_NAME(MASTER_PORT));
	char address_word[DDP_WORD_SIZE] = "", port_word[DDP_WORD_SIZE];

	if (address && id->local_size < id->size)
		ddp_place_word(address, address_word);
	ddp_place_word(port ? port : "0", port_word);
	snprintf(name, 3 * DDP_WORD_SIZE, "%s%s%s-%s", run, *address_word ? "-" : "", address_word,
		 port_word);
}

static int place_torchrun(const struct ddp_view *view, struct ddp_identity *id,
			  struct ddp_error *error)
{
	const char *run = ddp_variable_get(view->env, "TORCHELASTIC_RUN_ID");
	char run_word[DDP_WORD_SIZE], world[3 * DDP_WORD_SIZE], step[DDP_WORD_SIZE];
	char key[DDP_WORD_SIZE], tag[32] = "", name[4 * DDP_WORD_SIZE];
	bool by_hand = find_key_by_hand(view, id, key);
	int status;

	ddp_place_word(run ? run : "none", run_word);
	name_torchrun(view, id, run_word, world);
	if (id->local_size == id->size)
		snprintf(tag, sizeof(tag), "-%016llx", (unsigned long long)host_tag(view));
	if (by_hand)
		snprintf(id->job, sizeof(id->job), "%s", key);
	else
		snprintf(id->job, sizeof(id->job), "%s%s", world, tag);
	snprintf(name, sizeof(name), "%s%s", by_hand ? key : run_word, by_hand ? "" : tag);
	if (view->in_step) {
		format_step(view, step);
		status = place_step_records(view, cluster_name(view), step, id, error);
	} else {
		status = ddp_place_records(view, name, id, error);
	}
	if (status < 0)
		return status;
	if (by_hand)
		snprintf(name, sizeof(name), "env-%s.%d", key, id->attempt);
	else
		snprintf(name, sizeof(name), "torchrun-%s.%d%s", world, id->attempt, tag);
	return ddp_place_directory(view, name, id, error);
}

static int identify_torchrun(const struct ddp_view *view, struct ddp_identity *id,
			     struct ddp_error *error)
{
	int status = ddp_variable_int(view->env, "TORCHELASTIC_RESTART_COUNT", &id->attempt, error);

	undo_virtual(view, id);
	return status < 0 ? status : place_torchrun(view, id, error);
}

/* --- Device and host ----------------------------------------------------------------------- */

/*
 * Count the devices in a list of indices, UUIDs or MIG names. Like CUDA, stop at the first invalid
 * entry.
 */
static int count_devices(const char *list)
{
	int count = 0;

	if (strcmp(list, "NoDevFiles") == 0)
		return 0;
	while (*list && *list != '-') {
		list += strcspn(list, ",");
		list += *list == ',';
		count++;
	}
	return count;
}

/*
 * Returns local_rank modulo the number of visible devices, or -1 if no device is visible. If
 * CUDA_VISIBLE_DEVICES is unset, no device is visible in a Slurm job, and all devices are visible
 * elsewhere. If the variable is set but empty, no device is visible.
 */
static int find_device(const struct ddp_view *view, const struct ddp_identity *id)
{
	static const char name[] = "CUDA_VISIBLE_DEVICES=";
	int visible = view->in_job ? 0 : view->around->devices;

	for (char *const *env = view->env; env && *env; env++)
		if (strncmp(*env, name, sizeof(name) - 1) == 0) {
			visible = count_devices(*env + sizeof(name) - 1);
			break;
		}
	return visible > 0 ? id->local_rank % visible : -1;
}

/*
 * Set device and share, if the plugin did not set the variables for this process. DDP_SHARE is
 * ignored if the plugin set it, because then it applies to the task, and not to a process that the
 * task has started.
 */
static int choose_device(const struct ddp_view *view, struct ddp_identity *id,
			 struct ddp_error *error)
{
	id->device = find_device(view, id);
	if (view->contract != DDP_CONTRACT_NONE)
		return 0;
	return ddp_variable_share(view->env, DDP_NAME(DDP_SHARE), &id->share, error);
}

static void name_host(const struct ddp_view *view, struct ddp_identity *id)
{
	const char *node = view->in_job ? ddp_variable_get(view->env, "SLURMD_NODENAME") : NULL;

	snprintf(id->host, sizeof(id->host), "%s", node ? node : view->around->hostname);
}

/* --- Deciding ------------------------------------------------------------------------------ */

static int identify_single(const struct ddp_view *view, struct ddp_identity *id,
			   struct ddp_error *error)
{
	const char *job = ddp_variable_get(view->env, "SLURM_JOB_ID");
	char first[DDP_WORD_SIZE], name[128];

	/* A batch script can run several programs. Each of them is a separate world. */
	ddp_place_word(job ? job : view->around->hostname, first);
	snprintf(name, sizeof(name), "%s.%s%ld", first, job ? "single-" : "",
		 view->around->process);
	if (job) {
		char cluster[DDP_WORD_SIZE];

		ddp_place_word(cluster_name(view), cluster);
		snprintf(id->job, sizeof(id->job), "%s.%s", cluster, name);
		return place_step_records(view, cluster, name, id, error);
	}
	snprintf(id->job, sizeof(id->job), "%s", name);
	return ddp_place_records(view, name, id, error);
}

/*
 * Launchers, with the names of their six variables; NULL: identify() sets the number. For srun the
 * size is SLURM_STEP_NUM_TASKS, because with --preserve-env SLURM_NTASKS is that of the job.
 */
static const struct launcher {
	const char *name;
	const char *names[DDP_NUMBERS];
	int (*identify)(const struct ddp_view *, struct ddp_identity *, struct ddp_error *);
} launchers[] = {
	[DDP_SOURCE_PLUGIN] = {"srun --ddp or ddp-exec",
			       {"DDP_RANK", "DDP_SIZE", "DDP_LOCAL_RANK", "DDP_LOCAL_SIZE",
				"DDP_NODE_RANK", "GROUP_WORLD_SIZE"},
			       identify_plugin},
	[DDP_SOURCE_SRUN] = {"srun",
			     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL,
			      "SLURM_NODEID", "SLURM_STEP_NUM_NODES"},
			     identify_srun},
	[DDP_SOURCE_TORCHRUN] = {"torchrun",
				 {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
				  "GROUP_RANK", "GROUP_WORLD_SIZE"},
				 identify_torchrun},
	[DDP_SOURCE_SINGLE] = {"single", {NULL}, identify_single},
	[DDP_SOURCE_PROGRAM] = {"program", {NULL}, NULL}, /* see ddp_identity_give() */
};

const char *ddp_source_name(enum ddp_source source)
{
	return launchers[source].name;
}

/* Returns the first source that is present: torchrun, srun --ddp, srun, or RANK and WORLD_SIZE. */
static enum ddp_source choose_source(const struct ddp_view *view)
{
	const char *size = ddp_variable_get(view->env, "WORLD_SIZE");

	if (torchrun_started(view))
		return DDP_SOURCE_TORCHRUN;
	if (view->contract == DDP_CONTRACT_OURS)
		return DDP_SOURCE_PLUGIN;
	if (view->in_step)
		return DDP_SOURCE_SRUN;
	if (!contract_left(view) &&
	    (ddp_variable_get(view->env, "RANK") || (size && strcmp(size, "1") != 0)))
		return DDP_SOURCE_TORCHRUN;
	return DDP_SOURCE_SINGLE;
}

/*
 * Read the launcher's numbers. torchrun's variables are also set by other launchers and by users:
 * then a world of one rank needs only the first two, and a world on one node only the first four.
 */
static int read_numbers(const struct ddp_view *view, struct ddp_identity *id,
			struct ddp_error *error)
{
	const char *const *names = launchers[id->source].names;
	bool some = id->source == DDP_SOURCE_TORCHRUN;
	int status;

	if (id->source == DDP_SOURCE_SINGLE)
		return 0;
	if ((status = ddp_numbers_read(view, names, 0, 2, id, error)) < 0)
		return status;
	if ((!some || id->size > 1) &&
	    (status = ddp_numbers_read(view, names, 2, 4, id, error)) < 0)
		return status;
	if (some && id->size == id->local_size)
		return 0;
	return ddp_numbers_read(view, names, 4, DDP_NUMBERS, id, error);
}

/*
 * Refuse a process if another launcher has set another rank or size for it: without this check,
 * several processes would become the same rank. An MPI size of 1 is ignored, because MPI libraries
 * set it also in programs that no launcher started.
 */
static int check_others(const struct ddp_view *view, const struct ddp_identity *id,
			struct ddp_error *error)
{
	static const struct {
		/*
		 * [mark] is a variable that is set only if this launcher was used. PMI_RANK and
		 * PMI_SIZE are also set by Slurm's own PMI.
		 */
		const char *launcher, *rank, *size, *mark;
	} others[] = {
		{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
		{"torchrun or the user", "RANK", "WORLD_SIZE", "RANK"},
		{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
		{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	};
	bool alone = id->source == DDP_SOURCE_SINGLE;
	size_t first = view->in_step ? 0 : 1;

	if (id->source == DDP_SOURCE_TORCHRUN)
		return 0;
	if (contract_left(view) || alone)
		first = 2;
	for (size_t i = first; i < sizeof(others) / sizeof(others[0]); i++) {
		const char *rank = others[i].rank, *size = others[i].size;

		if (!ddp_variable_get(view->env, others[i].mark) ||
		    !ddp_variables_differ(view->env, rank, size, id->rank, id->size) ||
		    (i >= 2 && strcmp(ddp_variable_get(view->env, size), "1") == 0))
			continue;
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "%s set %s=%.32s and %s=%.32s, but %s%s this process is rank "
				     "%d of %d. Let srun start all ranks, or unset these "
				     "variables.",
				     others[i].launcher, rank, ddp_variable_get(view->env, rank),
				     size, ddp_variable_get(view->env, size),
				     alone ? "without them" : "for ",
				     alone ? "" : ddp_source_name(id->source), id->rank, id->size);
	}
	return 0;
}

/*
 * Set the path of the heartbeat file. If an outer step has set DDP_HEARTBEAT, ignore it, because
 * the file belongs to another rank.
 */
static void find_heartbeat(const struct ddp_view *view, struct ddp_identity *id)
{
	const char *path = ddp_variable_get(view->env, DDP_NAME(DDP_HEARTBEAT));

	if (path && view->contract != DDP_CONTRACT_FOREIGN && strlen(path) < sizeof(id->heartbeat))
		strcpy(id->heartbeat, path);
}

static int decide(struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	int status;

	if ((status = find_step(view, error)) < 0 || (status = check_leftover(view, error)) < 0)
		return status;
	id->source = choose_source(view);
	name_host(view, id);
	find_heartbeat(view, id);
	if ((status = read_numbers(view, id, error)) < 0 ||
	    (status = launchers[id->source].identify(view, id, error)) < 0 ||
	    (status = ddp_numbers_check(launchers[id->source].names, id, error)) < 0 ||
	    (status = check_others(view, id, error)) < 0)
		return status;
	if (id->source != DDP_SOURCE_PLUGIN && (status = choose_device(view, id, error)) < 0)
		return status;
	return read_end_time(view, id, error);
}

static void start_identity(const struct ddp_surroundings *surroundings,
			   struct ddp_surroundings *around, struct ddp_identity *identity)
{
	*around = *surroundings;
	if (!around->hostname)
		around->hostname = "localhost";
	*identity = (struct ddp_identity){
		.source = DDP_SOURCE_SINGLE,
		.size = 1,
		.local_size = 1,
		.node_count = 1,
		.device = -1,
	};
}

int ddp_identity_read(char *const *environment, const struct ddp_surroundings *surroundings,
		      struct ddp_identity *identity, struct ddp_error *error)
{
	struct ddp_surroundings around;
	struct ddp_view view = {.env = environment, .around = &around};

	start_identity(surroundings, &around, identity);
	return decide(&view, identity, error);
}

/* --- A rank that the program describes ------------------------------------------------------- */

static int check_given(const struct ddp_options *options, const struct ddp_identity *identity,
		       struct ddp_error *error)
{
	static const char *const names[DDP_NUMBERS] = {"rank",	     "world_size", "local_rank",
						       "local_size", "node_rank",  "node_count"};
	int status;

	if (!options->job || strlen(options->job) >= sizeof(identity->job) || !options->directory ||
	    strlen(options->directory) >= sizeof(identity->directory))
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "ddp_init: options with a world_size need a job and a "
				     "directory. Set job to less than %zu bytes, and directory to "
				     "less than %zu bytes.",
				     sizeof(identity->job), sizeof(identity->directory));
	if (options->rank < 0 || options->local_rank < 0 || options->node_rank < 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "ddp_init: rank %d, local_rank %d or node_rank %d is negative",
				     options->rank, options->local_rank, options->node_rank);
	status = ddp_numbers_check(names, identity, error);
	return status < 0 ? error->status = DDP_ERR_ARGUMENT : 0;
}

int ddp_identity_give(const struct ddp_options *options, char *const *environment,
		      const struct ddp_surroundings *surroundings, struct ddp_identity *identity,
		      struct ddp_error *error)
{
	struct ddp_surroundings around;
	struct ddp_view view = {.env = environment, .around = &around};
	struct ddp_error ignored = {0};
	bool on_one_node = options->local_size == 0;
	bool same;
	int status;

	start_identity(surroundings, &around, identity);
	same = decide(&view, identity, &ignored) == 0 && identity->rank == options->rank &&
	       identity->size == options->world_size;
	identity->source = DDP_SOURCE_PROGRAM;
	identity->rank = options->rank;
	identity->size = options->world_size;
	identity->local_rank = on_one_node ? options->rank : options->local_rank;
	identity->local_size = on_one_node ? options->world_size : options->local_size;
	identity->node_rank = on_one_node ? 0 : options->node_rank;
	identity->node_count = on_one_node ? 1 : options->node_count;
	status = check_given(options, identity, error);
	if (status < 0)
		return status;
	strcpy(identity->job, options->job);
	strcpy(identity->directory, options->directory);
	identity->own = true;
	if (same)
		return 0;
	identity->records[0] = '\0';
	identity->share = 0;
	identity->device = find_device(&view, identity);
	return 0;
}
