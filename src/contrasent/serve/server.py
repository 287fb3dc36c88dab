"""The process around the application: it ends although connections come while it is ending."""

import asyncio
import socket

import uvicorn


class Server(uvicorn.Server):
    """Uvicorn, which closes idle connections once and then waits for those that came since."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted, close what waits, whenever it came."""
        ending = asyncio.create_task(super().shutdown(sockets))
        while not (await asyncio.wait([ending], timeout=0.1))[0]:
            for connection in list(self.server_state.connections):
                connection.shutdown()
        await ending
