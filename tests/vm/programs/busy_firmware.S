/*
 * Firmware of a virtual machine that has nothing else: its vCPUs compute, and the first one keeps touching memory.
 *
 * A QEMU that is started with `-bios` and this, as a flat image of 64 KiB, is as busy as a guest can be, with no
 * kernel, and it has memory that lies on nodes. The image is at 0xf0000 and below 4 GiB, where the first CPU starts.
 */
	.equ	BASE, 0xf0000
	.equ	FIRST_BYTE, 1 << 20
	.equ	END, 40 << 20
	.equ	PAGE, 4096
	/* The local APIC: registers, and commands to all CPUs but this one (Intel's manual, volume 3, 10.6.1). */
	.equ	APIC_ENABLE, 0xfee000f0
	.equ	APIC_COMMAND, 0xfee00300
	.equ	INIT, 0xc4500
	.equ	START_AT_BASE, 0xc4600 | BASE >> 12

	.text
	.code16
image:
	/* Other CPUs start here. */
	cli
1:	incl	%eax
	jmp	1b

first:
	cli
	lgdtl	%cs:(gdt_address - image)
	movl	%cr0, %eax
	orb	$1, %al
	movl	%eax, %cr0
	ljmpl	$8, $(BASE + flat - image)

	.code32
flat:
	movw	$16, %ax
	movw	%ax, %ds
	movl	$0x1ff, APIC_ENABLE
	movl	$INIT, APIC_COMMAND
	movl	$10000000, %ecx
1:	decl	%ecx
	jnz	1b
	movl	$START_AT_BASE, APIC_COMMAND
touch:
	movl	$FIRST_BYTE, %edi
1:	incl	(%edi)
	addl	$PAGE, %edi
	cmpl	$END, %edi
	jb	1b
	jmp	touch

	.balign	8
gdt:
	.quad	0
	/* Code and data: all of 4 GiB, 32 bits. */
	.quad	0x00cf9b000000ffff
	.quad	0x00cf93000000ffff
gdt_address:
	.word	gdt_address - gdt - 1
	.long	BASE + gdt - image

	/* The first instruction after a reset. */
	.org	0xfff0
	.code16
	ljmp	$(BASE >> 4), $(first - image)
	.org	0x10000
