/* The types and macros of OpenZFS's headers that the suite's small programs use. */
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
typedef enum { B_FALSE, B_TRUE } boolean_t;
typedef unsigned int uint_t;
typedef unsigned char uchar_t;
typedef unsigned long ulong_t;
typedef long long longlong_t;
typedef unsigned long long u_longlong_t;
typedef long long offset_t;
#define	P2ROUNDUP(value, unit)	((((value) - 1) | ((unit) - 1)) + 1)
#define	MAXNAMELEN	256
#define	MIN(a, b)	((a) < (b) ? (a) : (b))
#define	MAX(a, b)	((a) > (b) ? (a) : (b))
#define	zfs_fallthrough	__attribute__((__fallthrough__))
#define	MAXOFFSET_T	0x7fffffffffffffffL
#define	ARRAY_SIZE(a)	(sizeof (a) / sizeof ((a)[0]))
