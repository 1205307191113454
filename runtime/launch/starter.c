/* SPDX-License-Identifier: Apache-2.0 */
/* starter.c - recognize programs that start ranks themselves, and judge a step with one */
#include "config.h"

#include "starter.h"

#include <string.h>

#include "plan.h"

enum kind { OTHER, TORCHRUN, ACCELERATE, DEEPSPEED, SHELL, MPIRUN, SRUN };

struct starter {
	enum kind kind;
	char *const *options; /* words after the starter: its options, then the user's program */
	const char *name;
};

static const struct {
	const char *name; /* name of the program or of the Python module */
	enum kind kind;
} starters[] = {
	{"torchrun", TORCHRUN},
	{"torch.distributed.run", TORCHRUN},
	{"torch.distributed.launch", TORCHRUN},
	{"accelerate", ACCELERATE},
	{"accelerate.commands.launch", ACCELERATE},
	{"deepspeed", DEEPSPEED},
	{"deepspeed.launcher.runner", DEEPSPEED},
	{"bash", SHELL},
	{"sh", SHELL},
	{"dash", SHELL},
	{"zsh", SHELL},
	{"ksh", SHELL},
	{"fish", SHELL},
	{"csh", SHELL},
	{"tcsh", SHELL},
	{"mpirun", MPIRUN},
	{"mpiexec", MPIRUN},
	{"orterun", MPIRUN},
	{"prterun", MPIRUN},
	{"srun", SRUN},
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_one_of(const char *word, const char *words)
{
	size_t n = strlen(word);

	for (const char *p = words; n > 0 && (p = strstr(p, word)); p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
			return true;
	return false;
}

/*
 * Returns the module or the program that Python at [word] runs, or NULL. Sets [word] to the last
 * word that Python itself reads. Python's short options can be joined: -um MODULE, -mMODULE.
 */
static const char *skip_python(char *const **word)
{
	while (*++*word && ***word == '-') {
		const char *letter = strpbrk(**word, "cmWX");

		if (!letter || (**word)[1] == '-')
			continue;
		if (*letter == 'c' || (!letter[1] && !*++*word))
			return NULL;
		if (*letter == 'm')
			return letter[1] ? letter + 1 : **word;
	}
	return **word;
}

/*
 * Find the starter in the command line [argv]. It is the first word, or a later word with arguments
 * after it. Later words count because env, nice, numactl and container runtimes run a program that
 * follows their own arguments. But all words after Python or a daemon of MPI are its arguments.
 */
static struct starter find_starter(char *const *argv)
{
	struct starter found = {.kind = OTHER};

	for (char *const *word = argv; *word && found.kind == OTHER; word++) {
		bool is_python = strncmp(base_name(*word), "python", 6) == 0;
		const char *program = is_python ? skip_python(&word) : *word;

		if (!program || (word > argv && !word[1]))
			break;
		found.name = base_name(program);
		found.options = word + 1;
		for (size_t i = 0; i < sizeof(starters) / sizeof(starters[0]); i++)
			if (strcmp(found.name, starters[i].name) == 0)
				found.kind = starters[i].kind;
		/* Of accelerate's commands, only "accelerate launch" starts ranks. */
		if (strcmp(found.name, "accelerate") == 0 &&
		    (!*found.options || strcmp(*found.options++, "launch") != 0))
			found.kind = OTHER;
		if (is_python || ddp_is_launcher(program))
			break;
	}
	return found;
}

/*
 * torchrun accepts '_' for '-' in the names of its options, and abbreviations such as "--nnode". It
 * exits if an abbreviation is ambiguous, so there is no check for that.
 */
static bool is_same_option(const char *word, const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (word[i] != name[i] && !(i >= 2 && word[i] == '_' && name[i] == '-'))
			return false;
	return length > 2;
}

/*
 * Returns the value of the starter's option [name], "" if the option is a flag, or NULL if it is
 * missing. The options end at the user's program.
 */
static const char *option(char *const *options, const char *name)
{
	static const char flags[] =
		"--standalone --no-python --no_python --run-path --run_path "
		"--module -m --use_env --use-env --multi_gpu --cpu --debug --quiet -q";

	for (; *options && **options == '-'; options++) {
		size_t n = strcspn(*options, "=");
		bool flag = is_one_of(*options, flags);

		if (is_same_option(*options, name, n)) {
			if ((*options)[n])
				return *options + n + 1;
			return flag || !options[1] ? "" : options[1];
		}
		if (!(*options)[n] && !flag && options[1])
			options++;
	}
	return NULL;
}

bool ddp_starter_is_standalone(char *const *argv)
{
	struct starter found = find_starter(argv);

	return found.kind == TORCHRUN && option(found.options, "--standalone");
}

const char *ddp_starter_nproc(char *const *argv)
{
	struct starter found = find_starter(argv);
	const char *value = found.kind == TORCHRUN ? option(found.options, "--nproc-per-node") : "";

	return found.kind != TORCHRUN ? NULL : value ? value : "";
}

bool ddp_starter_starts_ranks(char *const *argv)
{
	enum kind kind = find_starter(argv).kind;

	return kind == TORCHRUN || kind == ACCELERATE || kind == DEEPSPEED;
}

/*
 * Returns whether torchrun will start a world on this node alone. With [is_explicit], this is so
 * only if --nnodes or PET_NNODES has the value 1. Otherwise it is also so if neither is set.
 */
static bool is_alone(const struct starter *torchrun, char *const *env, bool is_explicit)
{
	const char *nodes = option(torchrun->options, "--nnodes");

	if (!nodes)
		nodes = ddp_users_value(env, "PET_NNODES");
	return nodes ? strcmp(nodes, "1") == 0 || strcmp(nodes, "1:1") == 0 : !is_explicit;
}

#define ALLOW " Use --ddp-launcher=allow to start it anyway."

static enum ddp_verdict check_torchrun(const struct starter *torchrun, char *const *env,
				       uint32_t tasks, uint32_t nodes, struct ddp_message *message)
{
	if (tasks > 1 && option(torchrun->options, "--standalone")) {
		(void)ddp_fail(
			message,
			"with torchrun --standalone each of the %u tasks would train a "
			"separate world. Leave --standalone out, and write --ntasks-per-node=1. "
			"torchrun's rendezvous is set." ALLOW,
			tasks);
		return DDP_VERDICT_REFUSE;
	}
	if (tasks > 1 && tasks <= nodes && is_alone(torchrun, env, true)) {
		(void)ddp_fail(
			message,
			"with --nnodes=1 or PET_NNODES=1 for torchrun, each of the %u tasks would "
			"train a separate world. Leave --nnodes out, and unset PET_NNODES." ALLOW,
			tasks);
		return DDP_VERDICT_REFUSE;
	}
	if (tasks > nodes && is_alone(torchrun, env, false)) {
		(void)ddp_fail(
			message,
			"torchrun starts all ranks of its node, so each of the %u tasks on %u "
			"node%s would train a separate world. Write --ntasks-per-node=1, or "
			"leave torchrun out (python3 train.py)." ALLOW,
			tasks, nodes, nodes > 1 ? "s" : "");
		return DDP_VERDICT_REFUSE;
	}
	return DDP_VERDICT_FINE;
}

static enum ddp_verdict check_accelerate(const struct starter *accelerate, uint32_t tasks,
					 struct ddp_message *message)
{
	const char *machines = option(accelerate->options, "--num-machines");
	const char *processes = option(accelerate->options, "--num-processes");

	/* If accelerate starts only one process, that process has the variables of the step. */
	if (tasks == 1 || (machines && strcmp(machines, "1") != 0) ||
	    (processes && strcmp(processes, "1") == 0))
		return DDP_VERDICT_FINE;
	(void)ddp_fail(
		message,
		"accelerate launch ignores RANK and WORLD_SIZE, so each of the %u tasks trains a "
		"separate world. Leave accelerate out (python3 train.py), or set "
		"--num_machines, --machine_rank, --main_process_ip and --main_process_port.",
		tasks);
	return DDP_VERDICT_TELL;
}

static enum ddp_verdict check_deepspeed(uint32_t tasks, struct ddp_message *message)
{
	if (tasks == 1)
		return DDP_VERDICT_FINE;
	(void)ddp_fail(
		message,
		"each of the %u tasks runs deepspeed, which starts ranks itself. Start the program "
		"without it: python3 train.py --deepspeed.",
		tasks);
	return DDP_VERDICT_TELL;
}

/* mpirun gets no variables, since its ranks would inherit RANK=0 and WORLD_SIZE=1. */
static enum ddp_verdict check_mpirun(const struct starter *mpirun, uint32_t tasks,
				     struct ddp_message *message)
{
	if (tasks > 1) {
		(void)ddp_fail(
			message,
			"each of the %u tasks would start ranks by %s, and --ddp does not set "
			"them up. Write srun --mpi=pmix --ddp python3 train.py, with a task for "
			"each rank." ALLOW,
			tasks, mpirun->name);
		return DDP_VERDICT_REFUSE;
	}
	(void)ddp_fail(
		message,
		"%s starts ranks, and --ddp does not set them up. Write srun --mpi=pmix --ddp python3 "
		"train.py, with a task for each rank.",
		mpirun->name);
	return DDP_VERDICT_TELL;
}

static enum ddp_verdict check_srun(struct ddp_message *message)
{
	(void)ddp_fail(
		message,
		"each task would start a step by srun, and that step would wait for the CPUs of "
		"the task. Leave the outer srun out, and write --ddp after the inner srun." ALLOW);
	return DDP_VERDICT_REFUSE;
}

/* Check for a shell that reads commands, rather than a script or "-c". */
static enum ddp_verdict check_shell(const struct starter *shell, uint32_t tasks, uint32_t restarts,
				    struct ddp_message *message)
{
	for (char *const *word = shell->options; *word; word++)
		if (**word != '-' || ((*word)[1] != '-' && strchr(*word, 'c')))
			return DDP_VERDICT_FINE;
	if (restarts > 0) {
		(void)ddp_fail(
			message,
			"%s reads commands, and ddp-run starts this shell again if its last "
			"command failed. For a session use salloc, and write ddp-run before each "
			"program.",
			shell->name);
		return DDP_VERDICT_TELL;
	}
	(void)ddp_fail(
		message,
		"%s is a rank. Programs that you start in it are the same rank of this world of "
		"%u, and may wait for the other ranks. For a session use salloc, and start each "
		"program by its own srun.",
		shell->name, tasks);
	return DDP_VERDICT_TELL;
}

/*
 * Report that the starter is not needed under ddp-run. If the starter has --max-restarts, report
 * instead that both would restart ranks.
 */
static enum ddp_verdict check_restarts(const struct starter *starter, char *const *env,
				       uint32_t restarts, struct ddp_message *message)
{
	const char *own = option(starter->options, "--max-restarts");

	if (restarts == 0)
		return DDP_VERDICT_FINE;
	if (!own && starter->kind == TORCHRUN)
		own = ddp_users_value(env, "PET_MAX_RESTARTS");
	if (own && strcmp(own, "0") != 0)
		(void)ddp_fail(
			message,
			"if a rank fails, %s starts the ranks of its node again (--max-restarts "
			"%.16s), and after these restarts ddp-run starts the whole step again "
			"(--restarts %u). Use one of the two: write ddp-run python3 train.py, "
			"with a task for each rank, or leave --max-restarts out.",
			starter->name, own, restarts);
	else
		(void)ddp_fail(
			message,
			"if a rank fails, %s ends, and ddp-run starts the whole step again "
			"(--restarts %u), so %s is not needed. Write ddp-run python3 train.py, "
			"with a task for each rank.",
			starter->name, restarts, starter->name);
	return DDP_VERDICT_TELL;
}

enum ddp_verdict ddp_starter_judge(char *const *argv, char *const *env, uint32_t tasks,
				   uint32_t nodes, uint32_t restarts, struct ddp_message *message)
{
	struct starter found = find_starter(argv);
	enum ddp_verdict verdict = DDP_VERDICT_FINE;

	switch (found.kind) {
	case TORCHRUN:
		verdict = check_torchrun(&found, env, tasks, nodes, message);
		break;
	case ACCELERATE:
		verdict = check_accelerate(&found, tasks, message);
		break;
	case DEEPSPEED:
		verdict = check_deepspeed(tasks, message);
		break;
	case SHELL:
		return check_shell(&found, tasks, restarts, message);
	case MPIRUN:
		return check_mpirun(&found, tasks, message);
	case SRUN:
		return check_srun(message);
	case OTHER:
		return DDP_VERDICT_FINE;
	}
	return verdict == DDP_VERDICT_FINE ? check_restarts(&found, env, restarts, message)
					   : verdict;
}

/* --- Programs by name --------------------------------------------------------------------- */

bool ddp_is_ours(const char *program)
{
	const char *name = base_name(program);

	return strcmp(name, "ddp-train") == 0 || strcmp(name, "ddp-info") == 0 ||
	       strcmp(name, "ddp-ranks") == 0;
}

bool ddp_is_launcher(const char *program)
{
	static const char *const names[] = {
		"orted", "prted", "orterun", "prterun", "pmi_proxy", "mpirun", "mpiexec",
	};
	const char *name = base_name(program);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strncmp(name, "hydra_", 6) == 0;
}
