"""Clients of volumes: NBD over a unix socket, iSCSI by libiscsi. Each call raises `Gone` if the server leaves."""

import ctypes
import socket
import struct


class Gone(Exception):
    pass


class Nbd:
    """Linux's nbd protocol, newstyle: NBD_OPT_GO, simple replies."""

    def __init__(self, path, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        try:
            self.socket.connect(path)
            self.receive(18)
            self.socket.sendall(struct.pack(">I", 3))
            name = name.encode()
            option = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
            self.socket.sendall(b"IHAVEOPT" + struct.pack(">II", 7, len(option)) + option)
            kind = 0
            while kind != 1:
                _, _, kind, length = struct.unpack(">QIII", self.receive(20))
                self.receive(length)
                if kind & 1 << 31:
                    raise Gone(f"refused {kind:x}")
        except (OSError, struct.error) as error:
            raise Gone(error) from error

    def receive(self, length):
        data = b""
        while len(data) < length:
            try:
                part = self.socket.recv(length - len(data))
            except OSError as error:
                raise Gone(error) from error
            if not part:
                raise Gone("closed")
            data += part
        return data

    def call(self, kind, offset, length, data=b"", fua=False):
        try:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, int(fua), kind, 1, offset, length) + data)
        except OSError as error:
            raise Gone(error) from error
        _, error, _ = struct.unpack(">IIQ", self.receive(16))
        if error:
            raise Gone(f"error {error}")
        return self.receive(length) if kind == 0 else b""

    def read(self, offset, length):
        return self.call(0, offset, length)

    def write(self, offset, data):
        """Durable (FUA)."""
        self.call(1, offset, len(data), data, True)

    def close(self, politely):
        try:
            if politely:
                self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 1, 0, 0))
        except OSError:
            pass
        self.socket.close()


class Iscsi:
    library = None

    def __init__(self, portal, target):
        lib = Iscsi.library or Iscsi.load()
        self.context = lib.iscsi_create_context(b"iqn.2026-11.org.cenote:together")
        lib.iscsi_set_targetname(self.context, target.encode())
        lib.iscsi_set_session_type(self.context, 2)
        lib.iscsi_set_noautoreconnect(self.context, 1)
        lib.iscsi_set_timeout(self.context, 60)
        if lib.iscsi_full_connect_sync(self.context, portal.encode(), 0):
            error = lib.iscsi_get_error(self.context)
            self.close(False)
            raise Gone(error)

    @staticmethod
    def load():
        lib, context = ctypes.CDLL("libiscsi.so.7"), ctypes.c_void_p
        lib.iscsi_create_context.restype = lib.iscsi_write16_sync.restype = context
        lib.iscsi_create_context.argtypes = [ctypes.c_char_p]
        lib.iscsi_get_error.restype, lib.iscsi_get_error.argtypes = ctypes.c_char_p, [context]
        for name in ("iscsi_set_session_type", "iscsi_set_noautoreconnect", "iscsi_set_timeout"):
            getattr(lib, name).argtypes = [context, ctypes.c_int]
        lib.iscsi_set_targetname.argtypes = [context, ctypes.c_char_p]
        lib.iscsi_full_connect_sync.argtypes = [context, ctypes.c_char_p, ctypes.c_int]
        # context, lun, lba, data, length, block size, wrprotect, dpo, fua, fua_nv, group
        lib.iscsi_write16_sync.argtypes = [context, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p,
                                           ctypes.c_uint32] + [ctypes.c_int] * 6
        lib.scsi_free_scsi_task.argtypes = lib.iscsi_destroy_context.argtypes = [context]
        Iscsi.library = lib
        return lib

    def write(self, offset, data):
        """Durable (FUA)."""
        task = self.library.iscsi_write16_sync(
            self.context, 0, offset // 512, data, len(data), 512, 0, 0, 1, 0, 0)
        if not task:
            raise Gone(self.library.iscsi_get_error(self.context))
        # `struct scsi_task` begins with its status.
        status = ctypes.cast(task, ctypes.POINTER(ctypes.c_int))[0]
        self.library.scsi_free_scsi_task(task)
        if status:
            raise Gone(f"status {status:x}")

    def close(self, _politely):
        if self.context:
            self.library.iscsi_destroy_context(self.context)
        self.context = None
