#!/usr/bin/env python3
"""clients.py PID NBD ISCSI HTTP TOKEN: hostile clients of a daemon's ports, beside honest ones; says figures.

Each attack holds its connections until the daemon has got rid of them or its time is over. Meanwhile an honest
client, connected before, reads 4 KiB blocks from the volume; its slowest read is what the attack costs others.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import time

PID, NBD, ISCSI, HTTP = map(int, sys.argv[1:5])
TOKEN = sys.argv[5]
TARGET = b"iqn.2026-11.org.cenote:tank:v"
CROWD = 10_000
MIB = 1 << 20


def memory_mib():
    with open(f"/proc/{PID}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


async def connect(port, source=None, **options):
    """A connection of a user of its own for each source: the daemon knows clients of its machine by user."""
    source = source or "127.0.0.1"
    os.seteuid(60000 + int(source.rsplit(".", 1)[1]))
    client = socket.socket()
    os.seteuid(0)
    client.bind((source, 0))
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=client, **options)


async def nbd(name, source=None, **options):
    """An NBD connection to an export, or what the server says instead."""
    reader, writer = await connect(NBD, source, **options)
    await reader.readexactly(18)
    data = struct.pack(">I", len(name)) + name.encode() + struct.pack(">H", 0)
    writer.write(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(data)) + data)
    while True:
        _, _, kind, length = struct.unpack(">QIII", await reader.readexactly(20))
        said = await reader.readexactly(length)
        if kind == 1:
            return reader, writer
        if kind >= 1 << 31:
            raise ConnectionRefusedError(said.decode())


def nbd_request(command, offset, length, cookie=1):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, cookie, offset, length)


async def nbd_read(client, offset, length):
    reader, writer = client
    writer.write(nbd_request(0, offset, length))
    _, error, _ = struct.unpack(">IIQ", await reader.readexactly(16))
    assert error == 0, error
    await reader.readexactly(length)


def iscsi_pdu(opcode, flags, data=b"", **fields):
    head = bytearray(48)
    head[0], head[1] = opcode, flags
    head[5:8] = len(data).to_bytes(3, "big")
    for at, value in fields.items():
        at = int(at[1:])
        head[at:at + len(value)] = value
    return bytes(head) + data + b"\0" * (-len(data) % 4)


async def iscsi_login(name, source=None, **options):
    reader, writer = await connect(ISCSI, source, **options)
    keys = [b"InitiatorName=iqn.hostile:" + name.encode(), b"TargetName=" + TARGET, b"SessionType=Normal"]
    keys += [b"InitialR2T=Yes", b"ImmediateData=No", b"MaxRecvDataSegmentLength=262144", b"MaxBurstLength=16776192"]
    text = b"\0".join(keys) + b"\0"
    isid = b"\x80" + abs(hash(name)).to_bytes(8, "big")[-5:]
    writer.write(iscsi_pdu(0x43, 0x87, text, _8=isid, _16=b"\0\0\0\1"))
    head = await reader.readexactly(48)
    await reader.readexactly((int.from_bytes(head[5:8], "big") + 3) // 4 * 4)
    if head[36]:
        raise ConnectionRefusedError(head[36:38].hex())
    return reader, writer


async def http(target, token=TOKEN, source=None):
    reader, writer = await connect(HTTP, source)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                 "Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


async def ended(reader):
    """Waits until the server ends a connection; what it said before that."""
    said = b""
    try:
        while more := await reader.read(4096):
            said = (said + more)[-4096:]
    except ConnectionError:
        pass
    return said


class Honest:
    """Reads small blocks all the time."""

    async def __aenter__(self):
        self.slowest, self.count, self.memory = 0, 0, 0
        self.task = asyncio.create_task(self.run())
        return self

    async def run(self):
        client = await nbd("tank/v", "127.0.0.9")
        while True:
            begun = time.monotonic()
            await nbd_read(client, self.count % 4096 * 4096, 4096)
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.count += 1
            self.memory = max(self.memory, memory_mib())
            await asyncio.sleep(0.01)

    async def __aexit__(self, *_):
        if self.task.done():
            self.task.result()
        self.task.cancel()

    def __str__(self):
        return f"others: {self.count} reads, the slowest {self.slowest * 1000:.0f} ms; memory at most {self.memory} MiB"


async def crowd(name, port, refusal, patience_s, hello=b""):
    """10,000 connections of three users, which say nothing more than `hello`, and stay."""
    before, begun = memory_mib(), time.monotonic()
    async with Honest() as honest:
        await asyncio.sleep(0.5)
        kept, told, shut = [], 0, 0

        async def one(number):
            nonlocal told, shut
            try:
                reader, writer = await connect(port, f"127.0.0.{2 + number % 3}")
                writer.write(hello)
                said = await asyncio.wait_for(ended(reader), 3)
                writer.close()
                told, shut = (told + 1, shut) if refusal in said else (told, shut + 1)
            except TimeoutError:
                kept.append((reader, writer))
            except ConnectionError:
                shut += 1

        for start in range(0, CROWD, 500):
            await asyncio.gather(*(one(number) for number in range(start, start + 500)))
        filled = time.monotonic() - begun
        first = time.monotonic()
        await asyncio.wait_for(asyncio.gather(*(ended(reader) for reader, _ in kept)), patience_s + 15)
        gone = time.monotonic() - first
        for _, writer in kept:
            writer.close()
        print(f"{name}: of {CROWD} connections {len(kept)} let in, {told} told that there is no room, {shut} shut "
              f"({filled:.0f} s); silent, they were gone {gone:.0f} s later. {honest}; before {before}, after {memory_mib()}")
        assert len(kept) <= 1024 and told > 0 and honest.count > 100
    return honest.memory - before


async def hogs(name, count, hog, large_s, all_end=True):
    """Clients that take memory and give nothing back. A large request of another must come through in time."""
    before = memory_mib()
    async with Honest() as honest:
        await asyncio.sleep(0.2)
        held = await asyncio.gather(*(hog(number) for number in range(count)))
        await asyncio.sleep(1)
        begun = time.monotonic()
        client = await nbd("tank/v", "127.0.0.9")
        await asyncio.wait_for(nbd_read(client, 0, MIB), large_s)
        large = time.monotonic() - begun
        gone = ""
        if all_end:
            await asyncio.wait_for(asyncio.gather(*(ended(reader) for reader, _ in held)), 90)
            gone = f", gone after {time.monotonic() - begun:.0f} s"
        for _, writer in held + [client]:
            writer.close()
        print(f"{name}: {count} clients{gone}; a read of 1 MiB took {large * 1000:.0f} ms. {honest}; "
              f"before {before}, after {memory_mib()}")
        assert honest.slowest < 5
    return honest.memory - before


async def does_not_read(number):
    client = await nbd("tank/v", "127.0.0.2", limit=1 << 10)
    client[0]._transport.pause_reading()
    client[1].write(b"".join(nbd_request(0, at * MIB, MIB) for at in range(128)))
    return client


async def promises(number):
    client = await nbd("tank/v", "127.0.0.2")
    client[1].write(nbd_request(1, 0, 32 * MIB) + b"x")
    return client


async def half_a_request(number):
    client = await nbd("tank/v", "127.0.0.2")
    client[1].write(nbd_request(1, 0, 4096)[:20])
    return client


async def ignores_r2t(number):
    client = await iscsi_login(f"h{number}", "127.0.0.2")
    for command in range(8):
        # WRITE(10) of 16,384 blocks, 8 MiB.
        cdb = struct.pack(">BBIBHB", 0x2A, 0, 0, 0, 16384, 0) + b"\0" * 6
        number = struct.pack(">I", command)
        client[1].write(iscsi_pdu(1, 0xA1, _16=number, _20=struct.pack(">I", 8 * MIB), _24=number, _32=cdb))
    return client


async def web():
    """HTTP: clients that don't read, and those that write slowly."""
    held = []
    # Half of the room for each user.
    for number in range(64):
        reader, writer = await connect(HTTP, f"127.0.0.{2 + number % 2}", limit=1 << 10)
        writer.write(f"POST /v1/cat?targets=%22tank/files:/large%22 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                     f"Authorization: Bearer {TOKEN}\r\nAccept: application/octet-stream\r\n\r\n".encode())
        reader._transport.pause_reading()
        held.append((reader, writer))
    await asyncio.sleep(2)
    begun = time.monotonic()
    told = await http("/v1/zpool/list")
    print(f"HTTP: 64 clients with a token, of two users, don't read a file: another is told {told} "
          f"after {time.monotonic() - begun:.1f} s")
    assert told == 200
    for _, writer in held:
        writer.close()

    async def drips():
        reader, writer = await connect(HTTP, "127.0.0.2")
        begun = time.monotonic()
        end = asyncio.create_task(ended(reader))
        for byte in b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 1000:
            if end.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.5)
        return time.monotonic() - begun

    took = await asyncio.gather(*(drips() for _ in range(200)))
    print(f"HTTP: 200 clients send heads a byte at a time: gone after {max(took):.0f} s")
    assert max(took) < 40


async def main():
    only = sys.argv[6:]
    grown = []
    # Both are answered, and something is to follow.
    info = struct.pack(">I", 6) + b"tank/v" + b"\0\0"
    info = struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 6, len(info)) + info
    login = iscsi_pdu(0x43, 0x44, b"InitiatorName=iqn.x\0", _16=b"\0\0\0\1")
    parts = {
        "crowd-nbd": lambda: crowd("NBD", NBD, b"too many clients", 60, info),
        "crowd-iscsi": lambda: crowd("iSCSI", ISCSI, b"\3\2", 60, login),
        "crowd-http": lambda: crowd("HTTP", HTTP, b"503 Service", 20, b"GET / HTTP/1.1\r\n"),
        "unread": lambda: hogs("NBD, replies that nobody reads", 60, does_not_read, 45, False),
        "promises": lambda: hogs("NBD, data that does not come", 60, promises, 45, False),
        "halves": lambda: hogs("NBD, half a request", 200, half_a_request, 45),
        "r2t": lambda: hogs("iSCSI, data that was asked for does not come", 60, ignores_r2t, 45, False),
        "web": web,
    }
    for name, part in parts.items():
        if not only or name in only:
            grown.append(await part() or 0)
            await asyncio.sleep(1)
    print(f"at most {max(grown, default=0)} MiB more than before")
    assert max(grown, default=0) < 512


sys.stdout.reconfigure(line_buffering=True)
asyncio.run(main())
