/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "starter.h"
#include "unit.h"

static const struct {
	const char *command; /* command and arguments, separated by spaces */
	uint32_t tasks, nodes;
	enum ddp_verdict verdict;
	const char *says;
} commands[] = {
	{"python3 train.py", 4, 2, DDP_VERDICT_FINE, NULL},
	{"./train", 4, 2, DDP_VERDICT_FINE, NULL},
	{"torchrun train.py", 2, 2, DDP_VERDICT_FINE, NULL},
	{"torchrun train.py", 1, 1, DDP_VERDICT_FINE, NULL},
	{"torchrun train.py", 4, 2, DDP_VERDICT_REFUSE, "each of the 4 tasks on 2 nodes would"},
	{"torchrun train.py", 2, 1, DDP_VERDICT_REFUSE, "Write --ntasks-per-node=1"},
	{"/opt/venv/bin/torchrun --nproc-per-node=2 train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun starts"},
	{"python3 -u -m torch.distributed.run train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun starts"},
	{"python3.11 -X dev /opt/bin/torchrun train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun starts"},
	{"env -u HOME A=1 python -m torch.distributed.launch train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun"},
	{"python3 -mtorch.distributed.run --nnodes=1 --standalone train.py", 2, 2,
	 DDP_VERDICT_REFUSE, "Leave --standalone out"},
	{"python3 -Xdev -W ignore -um torch.distributed.run train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun starts"},
	/* A program that runs another one, with arguments of any form before it. */
	{"nice -n 5 torchrun --standalone train.py", 2, 2, DDP_VERDICT_REFUSE, "--standalone"},
	{"timeout 1h numactl -N 0 torchrun --nnodes=1 train.py", 2, 2, DDP_VERDICT_REFUSE,
	 "Leave --nnodes out"},
	{"setsid --wait stdbuf -oL time python3 -u -m torch.distributed.run train.py", 2, 1,
	 DDP_VERDICT_REFUSE, "torchrun starts"},
	{"apptainer exec --nv torch.sif torchrun train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "torchrun starts"},
	{"env -i A=1 taskset -c 0-3 mpirun -n 4 ./train", 2, 1, DDP_VERDICT_REFUSE, "by mpirun"},
	{"nice bash train.sh", 2, 1, DDP_VERDICT_FINE, NULL},
	{"nice python3 train.py torchrun train.py", 2, 1, DDP_VERDICT_FINE, NULL},
	{"python3 -c pass torchrun train.py", 2, 1, DDP_VERDICT_FINE, NULL},
	{"which torchrun", 2, 1, DDP_VERDICT_FINE, NULL},
	{"hydra_pmi_proxy --launcher srun --rmk slurm", 2, 2, DDP_VERDICT_FINE, NULL},
	{"torchrun --nnode=1 train.py", 2, 2, DDP_VERDICT_REFUSE, "Leave --nnodes out"},
	{"torchrun --nnodes=1 train.py", 2, 1, DDP_VERDICT_REFUSE, "torchrun starts"},
	{"torchrun --nnodes=1 train.py", 2, 2, DDP_VERDICT_REFUSE, "Leave --nnodes out"},
	{"torchrun --nnodes 1:1 train.py", 2, 1, DDP_VERDICT_REFUSE, "torchrun starts"},
	/*
	 * The user requests several torchrun nodes, and so knows that each task is a node for
	 * torchrun.
	 */
	{"torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=h:1 train.py", 4, 2,
	 DDP_VERDICT_FINE, NULL},
	{"torchrun --nnodes 1:4 train.py", 4, 2, DDP_VERDICT_FINE, NULL},
	{"torchrun --standalone train.py", 1, 1, DDP_VERDICT_FINE, NULL},
	{"torchrun --standalone train.py", 2, 2, DDP_VERDICT_REFUSE, "Leave --standalone out"},
	{"torchrun --nproc_per_node 2 --standalone train.py", 2, 2, DDP_VERDICT_REFUSE,
	 "--standalone"},
	{"torchrun --nproc_per_node 2 train.py --standalone", 2, 2, DDP_VERDICT_FINE, NULL},
	{"torchrun --rdzv-id --standalone train.py", 2, 2, DDP_VERDICT_FINE, NULL},
	{"accelerate launch train.py", 2, 2, DDP_VERDICT_TELL,
	 "each of the 2 tasks trains a separate world"},
	{"accelerate launch --num_processes 2 train.py", 2, 2, DDP_VERDICT_TELL,
	 "--main_process_ip"},
	{"accelerate launch --num_machines 2 train.py", 2, 2, DDP_VERDICT_FINE, NULL},
	{"accelerate launch --num_machines 1 train.py", 2, 2, DDP_VERDICT_TELL, "a separate world"},
	{"accelerate launch --num_processes 1 train.py", 2, 2, DDP_VERDICT_FINE, NULL},
	{"accelerate launch --multi_gpu --num-machines=2 train.py", 2, 2, DDP_VERDICT_FINE, NULL},
	{"accelerate launch train.py", 1, 1, DDP_VERDICT_FINE, NULL},
	{"python -m accelerate.commands.launch train.py", 2, 1, DDP_VERDICT_TELL,
	 "accelerate launch"},
	{"accelerate config", 2, 2, DDP_VERDICT_FINE, NULL},
	{"accelerate", 2, 2, DDP_VERDICT_FINE, NULL},
	{"deepspeed train.py", 2, 2, DDP_VERDICT_TELL, "python3 train.py --deepspeed"},
	{"deepspeed train.py", 1, 1, DDP_VERDICT_FINE, NULL},
	{"mpirun -n 4 python3 train.py", 2, 1, DDP_VERDICT_REFUSE,
	 "each of the 2 tasks would start ranks by mpirun"},
	{"/usr/bin/mpiexec python3 train.py", 1, 1, DDP_VERDICT_TELL,
	 "mpiexec starts ranks, and --ddp does not set them up. Write srun --mpi=pmix --ddp"},
	{"orted -mca ess slurm", 2, 2, DDP_VERDICT_FINE, NULL},
	{"srun python3 train.py", 4, 2, DDP_VERDICT_REFUSE, "write --ddp after the inner srun"},
	{"env A=1 /usr/bin/srun ./train", 1, 1, DDP_VERDICT_REFUSE,
	 "would wait for the CPUs of the task"},
	{"bash", 1, 1, DDP_VERDICT_TELL, "bash is a rank"},
	{"/bin/zsh -l", 4, 2, DDP_VERDICT_TELL,
	 "zsh is a rank. Programs that you start in it are the same rank of this world of 4"},
	{"bash --norc -i", 1, 1, DDP_VERDICT_TELL, "by its own srun"},
	{"bash -c true", 2, 1, DDP_VERDICT_FINE, NULL},
	{"bash -lc true", 2, 1, DDP_VERDICT_FINE, NULL},
	{"bash train.sh", 2, 1, DDP_VERDICT_FINE, NULL},
	{"python3 -c torchrun", 2, 1, DDP_VERDICT_FINE, NULL},
	{"python3", 2, 1, DDP_VERDICT_FINE, NULL},
	{"python3 -m", 2, 1, DDP_VERDICT_FINE, NULL},
	{"env", 2, 1, DDP_VERDICT_FINE, NULL},
	{"", 2, 1, DDP_VERDICT_FINE, NULL},
};

static void split(char *words, char **argv)
{
	size_t n = 0;

	for (char *word; (word = strsep(&words, " "));)
		if (*word)
			argv[n++] = word;
	argv[n] = NULL;
}

TEST_ROWS(test_commands, commands)
{
	const char *row = commands[_i].command;
	struct ddp_message message = {""};
	char words[256], *argv[16];

	strcpy(words, row);
	split(words, argv);
	unit_number(row, "verdict",
		    ddp_starter_judge(argv, NULL, commands[_i].tasks, commands[_i].nodes, 0,
				      &message),
		    commands[_i].verdict);
	if (commands[_i].says)
		UNIT_SAYS(row, message.text, commands[_i].says);
	if (commands[_i].verdict == DDP_VERDICT_REFUSE)
		UNIT_SAYS(row, message.text, "--ddp-launcher=allow");
	unit_number(row, "standalone", ddp_starter_is_standalone(argv),
		    strstr(row, "--standalone train.py") && !strstr(row, "--rdzv-id"));
}

static const struct {
	const char *command;
	bool starts_ranks;
} starters[] = {
	{"python3 -m torch.distributed.run train.py", true},
	{"accelerate launch train.py", true},
	{"accelerate config", false},
	{"env A=1 deepspeed train.py", true},
	{"python3 train.py", false},
	{"bash train.sh", false},
	{"srun python3 train.py", false},
	{"", false},
};

TEST_ROWS(test_starts_ranks, starters)
{
	char words[256], *argv[16];

	strcpy(words, starters[_i].command);
	split(words, argv);
	unit_number(starters[_i].command, "starts ranks", ddp_starter_starts_ranks(argv),
		    starters[_i].starts_ranks);
}

static const struct {
	const char *command, *nproc;
} workers[] = {
	{"torchrun --nproc_per_node=4 train.py", "4"},
	{"env A=1 python3 -u -m torch.distributed.run --nnodes 2 --nproc-per-node gpu train.py",
	 "gpu"},
	{"python3 -m torch.distributed.launch --use_env train.py --nproc_per_node=4", ""},
	{"torchrun train.py", ""},
	{"python3 train.py --nproc_per_node=4", NULL},
	{"accelerate launch train.py", NULL},
	{"", NULL},
};

TEST_ROWS(test_nproc, workers)
{
	const char *row = workers[_i].command, *nproc;
	char words[256], *argv[16];

	strcpy(words, row);
	split(words, argv);
	nproc = ddp_starter_nproc(argv);
	ck_assert_msg(!nproc == !workers[_i].nproc, "%s", row);
	if (nproc)
		ck_assert_str_eq(nproc, workers[_i].nproc);
}

/*
 * A step is not refused if the user set PET_NNODES. A value that an outer --ddp step set does not
 * count.
 */
TEST(test_nodes)
{
	static const char *const users[] = {"PET_NNODES=4", NULL};
	static const char *const outer[] = {"PET_NNODES=4", "DDP_OURS=PET_NNODES=4", NULL};
	char *argv[] = {(char[]){"torchrun"}, NULL};
	struct ddp_message message;

	ck_assert_int_eq(ddp_starter_judge(argv, unit_env(users), 4, 2, 0, &message),
			 DDP_VERDICT_FINE);
	ck_assert_int_eq(ddp_starter_judge(argv, unit_env(outer), 4, 2, 0, &message),
			 DDP_VERDICT_REFUSE);
}

/* Verdicts under ddp-run --restarts 3, for a step of 2 tasks on 2 nodes. */
static const struct {
	const char *command;
	enum ddp_verdict verdict;
	const char *says;
} restarted[] = {
	{"python3 train.py", DDP_VERDICT_FINE, NULL},
	{"bash train.sh", DDP_VERDICT_FINE, NULL},
	{"torchrun train.py", DDP_VERDICT_TELL, "torchrun ends, and ddp-run starts the whole step"},
	{"torchrun --max_restarts=0 train.py --max-restarts=9", DDP_VERDICT_TELL,
	 "again (--restarts 3), so torchrun is not needed"},
	{"torchrun --max-restarts 2 train.py", DDP_VERDICT_TELL,
	 "torchrun starts the ranks of its node again (--max-restarts 2), and"},
	{"python3 -m torch.distributed.run --max_restarts=2 train.py", DDP_VERDICT_TELL,
	 "(--restarts 3)"},
	{"accelerate launch --num_machines 2 train.py", DDP_VERDICT_TELL, "accelerate ends"},
	{"accelerate launch --num_machines 2 --max_restarts 1 train.py", DDP_VERDICT_TELL,
	 "accelerate starts the ranks"},
	{"accelerate launch train.py", DDP_VERDICT_TELL, "a separate world"},
	{"torchrun --standalone train.py", DDP_VERDICT_REFUSE, "a separate world"},
	{"bash -i", DDP_VERDICT_TELL, "ddp-run starts this shell again if its last command"},
};

TEST_ROWS(test_restarts, restarted)
{
	static const char *const users[] = {"PET_MAX_RESTARTS=5", NULL};
	const char *row = restarted[_i].command;
	struct ddp_message message = {""};
	char words[256], *argv[16];

	strcpy(words, row);
	split(words, argv);
	unit_number(row, "verdict", ddp_starter_judge(argv, NULL, 2, 2, 3, &message),
		    restarted[_i].verdict);
	if (restarted[_i].says)
		UNIT_SAYS(row, message.text, restarted[_i].says);
	if (strcmp(row, "torchrun train.py") == 0) {
		ddp_starter_judge(argv, unit_env(users), 2, 2, 3, &message);
		UNIT_SAYS(row, message.text, "(--max-restarts 5)");
	}
}

UNIT_MAIN("starter", NULL)
