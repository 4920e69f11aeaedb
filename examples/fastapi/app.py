"""Pinfold behind an HTTP API of your own: one agent, one question after the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pinfold import Agent, PinfoldError

HERE = Path(__file__).parent
MODEL = os.environ.get("MODEL", f"scripted:{HERE / 'script.jsonl'}")
WORKSPACE = Path(os.environ.get("WORKSPACE", HERE / "work"))
WORKSPACE.mkdir(exist_ok=True)
asking = asyncio.Lock()
"""A session does one thing at a time."""


class Question(BaseModel):
    prompt: str


class Answer(BaseModel):
    text: str
    tokens: int
    session: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    app.state.agent = await Agent(model=MODEL, workspace=WORKSPACE).open()
    yield
    await app.state.agent.close()


app = FastAPI(lifespan=lifespan)


@app.post("/ask")
async def ask(question: Question) -> Answer:
    async with asking:
        try:
            result = await app.state.agent.run(question.prompt)
        except PinfoldError as error:
            raise HTTPException(502, str(error)) from error
    return Answer(text=result.text, tokens=result.usage.total, session=result.session_id)
