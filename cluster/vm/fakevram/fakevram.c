// SPDX-License-Identifier: GPL-2.0
/*
 * Accelerator cards that are not there, with memory that the kernel's dmem controller accounts, as it does for real drivers.
 *
 * Card N is /dev/zpuN, its dmem region is fake/zpuN. A process that writes a decimal number to the device allocates so many
 * bytes of the card's memory: they are charged to the cgroup of the process, or the write fails with EAGAIN, which is what
 * dmem answers beyond a limit. Reading returns the bytes that this open file holds. Closing it, also by the end of the
 * process, frees them.
 */
#include <linux/cgroup_dmem.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/sizes.h>
#include <linux/uaccess.h>

#define MAX_CARDS 16

static unsigned int cards = 2;
module_param(cards, uint, 0444);
MODULE_PARM_DESC(cards, "number of cards, 1 to 16");

static unsigned long memory_mib = 16384;
module_param(memory_mib, ulong, 0444);
MODULE_PARM_DESC(memory_mib, "memory of each card in MiB");

struct zpu {
	char name[8];
	struct miscdevice device;
	struct dmem_cgroup_region *region;
};

/* One allocation: dmem must be given back to the same pool that was charged, wherever the process is by then. */
struct allocation {
	struct list_head entry;
	struct dmem_cgroup_pool_state *pool;
	u64 bytes;
};

/* What one open file holds. */
struct client {
	struct zpu *card;
	struct mutex lock;
	struct list_head allocations;
	u64 total;
};

static struct zpu zpus[MAX_CARDS];
static unsigned int registered;

static int zpu_open(struct inode *inode, struct file *file)
{
	/* misc_open() leaves the device that was opened in private_data. */
	struct miscdevice *device = file->private_data;
	struct client *client;

	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return -ENOMEM;

	client->card = container_of(device, struct zpu, device);
	mutex_init(&client->lock);
	INIT_LIST_HEAD(&client->allocations);
	file->private_data = client;
	return 0;
}

static ssize_t zpu_write(struct file *file, const char __user *buffer, size_t count, loff_t *position)
{
	struct client *client = file->private_data;
	struct allocation *allocation;
	u64 bytes;
	int result;

	result = kstrtou64_from_user(buffer, count, 10, &bytes);
	if (result)
		return result;

	allocation = kzalloc(sizeof(*allocation), GFP_KERNEL);
	if (!allocation)
		return -ENOMEM;

	result = dmem_cgroup_try_charge(client->card->region, bytes, &allocation->pool, NULL);
	if (result) {
		kfree(allocation);
		return result;
	}
	allocation->bytes = bytes;

	mutex_lock(&client->lock);
	list_add_tail(&allocation->entry, &client->allocations);
	client->total += bytes;
	mutex_unlock(&client->lock);
	return count;
}

static ssize_t zpu_read(struct file *file, char __user *buffer, size_t count, loff_t *position)
{
	struct client *client = file->private_data;
	char text[24];
	int length;

	mutex_lock(&client->lock);
	length = scnprintf(text, sizeof(text), "%llu\n", client->total);
	mutex_unlock(&client->lock);
	return simple_read_from_buffer(buffer, count, position, text, length);
}

static int zpu_release(struct inode *inode, struct file *file)
{
	struct client *client = file->private_data;
	struct allocation *allocation, *next;

	list_for_each_entry_safe(allocation, next, &client->allocations, entry) {
		dmem_cgroup_uncharge(allocation->pool, allocation->bytes);
		list_del(&allocation->entry);
		kfree(allocation);
	}
	mutex_destroy(&client->lock);
	kfree(client);
	return 0;
}

static const struct file_operations zpu_operations = {
	.owner = THIS_MODULE,
	.open = zpu_open,
	.read = zpu_read,
	.write = zpu_write,
	.release = zpu_release,
};

static int zpu_register(struct zpu *card, unsigned int number)
{
	int result;

	scnprintf(card->name, sizeof(card->name), "zpu%u", number);
	card->region = dmem_cgroup_register_region((u64)memory_mib * SZ_1M, "fake/%s", card->name);
	if (IS_ERR(card->region))
		return PTR_ERR(card->region);
	if (!card->region) /* what the function returns in a kernel without CONFIG_CGROUP_DMEM */
		return -EOPNOTSUPP;

	card->device.minor = MISC_DYNAMIC_MINOR;
	card->device.name = card->name;
	card->device.fops = &zpu_operations;
	card->device.mode = 0666;
	result = misc_register(&card->device);
	if (result)
		dmem_cgroup_unregister_region(card->region);
	return result;
}

static void fakevram_exit(void)
{
	while (registered > 0) {
		registered--;
		misc_deregister(&zpus[registered].device);
		dmem_cgroup_unregister_region(zpus[registered].region);
	}
}

static int __init fakevram_init(void)
{
	int result;

	if (cards < 1 || cards > MAX_CARDS) {
		pr_err("fakevram: cards is %u; it must be 1 to %d\n", cards, MAX_CARDS);
		return -EINVAL;
	}
	while (registered < cards) {
		result = zpu_register(&zpus[registered], registered);
		if (result) {
			fakevram_exit();
			return result;
		}
		registered++;
	}
	return 0;
}

module_init(fakevram_init);
module_exit(fakevram_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Fake accelerator cards whose memory the dmem cgroup controller limits");
