"""gone.py PORT idle|flooded: an NBD client that is connected, and asks for more than it reads, or for nothing."""

import socket
import struct
import sys
import time

server = socket.create_connection(("198.51.100.1", int(sys.argv[1])))
data = struct.pack(">I", 6) + b"tank/v" + struct.pack(">H", 0)
server.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(data)) + data)
time.sleep(1)
if sys.argv[2] == "flooded":
    server.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, 0, 1 << 20) * 4)
time.sleep(1000)
