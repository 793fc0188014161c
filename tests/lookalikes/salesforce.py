"""A server on this machine that answers as Salesforce does: logins, REST queries, describes, limits, Bulk API 2.0 query jobs."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import jwt
from lookalikes.salesforce_org import Org, csv_cell, dumps
from lookalikes.salesforce_soql import RefusedError, parse
from lookalikes.threaded import app_served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

API = "/services/data/v59.0"


class Server:
    """The org over HTTP."""

    def __init__(self, org: Org) -> None:
        self.org = org
        self.base_url = ""
        self.app = Starlette(
            routes=[
                Route("/services/Soap/u/59.0", self.soap, methods=["POST"]),
                Route("/services/oauth2/token", self.token, methods=["POST"]),
                Route(f"{API}/limits/", self.limits),
                Route(f"{API}/sobjects", self.sobjects),
                Route(f"{API}/sobjects/{{name}}/describe", self.describe),
                Route(f"{API}/query/", self.query),
                Route(f"{API}/queryAll/", self.query),
                Route(f"{API}/query/{{locator}}", self.more),
                Route(f"{API}/jobs/query", self.make_job, methods=["POST"]),
                Route(f"{API}/jobs/query/{{job}}", self.job, methods=["GET", "PATCH", "DELETE"]),
                Route(f"{API}/jobs/query/{{job}}/results", self.results),
            ]
        )

    async def soap(self, request: Request) -> Response:
        body = (await request.body()).decode()
        said = {name: unescape(text) for name, text in re.findall(r"<n1:(username|password)>([^<]*)</", body)}
        self.org.asked.append(("POST", "soap login"))
        if self.org.troubles.login_answer:
            status, text = self.org.troubles.login_answer
            return Response(text, status, media_type="text/xml")
        if said == {"username": self.org.username, "password": self.org.password + self.org.token}:
            answer = f"<sessionId>{self.org.open_session()}</sessionId><serverUrl>https://eu9.salesforce.com/services/Soap/u/59.0</serverUrl>"
            return Response(f"<Envelope><Body><result>{answer}</result></Body></Envelope>", media_type="text/xml")
        code, message = "INVALID_LOGIN", "Invalid username, password, security token; or user locked out."
        fault = f"<sf:exceptionCode>{code}</sf:exceptionCode><sf:exceptionMessage>{message}</sf:exceptionMessage>"
        return Response(f'<Envelope xmlns:sf="urn:fault.partner.soap.sforce.com">{fault}</Envelope>', 500, media_type="text/xml")

    async def token(self, request: Request) -> Response:
        form = await request.form()
        self.org.asked.append(("POST", f"token {form.get('grant_type')}"))
        org = self.org
        basic = request.headers.get("Authorization", "").removeprefix("Basic ")
        match form.get("grant_type"):
            case "client_credentials":
                is_let = base64.b64decode(basic).decode() == f"{org.consumer_key}:{org.consumer_secret}"
                problem = ("invalid_client", "invalid client credentials")
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                is_let, problem = self._is_signed(str(form["assertion"])), ("invalid_grant", "invalid assertion")
            case _:
                is_let = form.get("username") == org.username and form.get("password") == org.password
                problem = ("invalid_grant", "authentication failure - Invalid Password")
        if not is_let:
            return JSONResponse({"error": problem[0], "error_description": problem[1]}, 400)
        url = "https://eu9.salesforce.com"
        return JSONResponse(
            {"access_token": org.open_session(), "instance_url": url, "id": f"{url}/id/00D/005", "token_type": "Bearer"}
        )

    def _is_signed(self, assertion: str) -> bool:
        try:
            claims = jwt.decode(assertion, self.org.public_key, algorithms=["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            return False
        return bool(claims["iss"] == self.org.consumer_key and claims["sub"] == self.org.username)

    async def limits(self, request: Request) -> Response:
        left = self.org.allowed - self.org.used
        return self._answer(request, {"DailyApiRequests": {"Max": self.org.allowed, "Remaining": left}})

    async def sobjects(self, request: Request) -> Response:
        return self._answer(request, {"sobjects": [{"name": name} for name in self.org.objects]})

    async def describe(self, request: Request) -> Response:
        one = self.org.objects.get(request.path_params["name"])
        if one is None:
            return self._refusal(404, "NOT_FOUND", "The requested resource does not exist")
        return self._answer(request, one.describe())

    async def query(self, request: Request) -> Response:
        soql = request.query_params["q"]
        return self._data(request, soql, lambda: self.org.run(soql, with_deleted="queryAll" in request.url.path))

    async def more(self, request: Request) -> Response:
        if self.org.troubles.pages_lead_nowhere:
            nowhere = {"totalSize": 25, "done": False, "nextRecordsUrl": request.url.path, "records": list[str]()}
            return self._data(request, request.url.path, lambda: nowhere)
        return self._data(request, request.url.path, lambda: self.org.more(request.path_params["locator"]))

    async def make_job(self, request: Request) -> Response:
        wish = json.loads(await request.body())
        if refused := self._refused(request, f"job {wish['operation']}: {wish['query']}"):
            return refused
        if self.org.troubles.not_in_bulk:
            return self._refusal(
                400, "INVALIDENTITY", f"Entity '{parse(wish['query']).source}' is not supported by the Bulk API."
            )
        name = f"750{next(self.org.numbers):015}"
        self.org.jobs[name] = {"wish": wish, "polls": 0, "state": "UploadComplete"}
        return JSONResponse({"id": name, "state": "UploadComplete", "operation": wish["operation"]}, headers=self._headers())

    async def job(self, request: Request) -> Response:
        name = request.path_params["job"]
        if refused := self._refused(request, "job"):
            return refused
        job = self.org.jobs.get(name)
        if job is None:
            return self._refusal(404, "NOT_FOUND", "The requested resource does not exist")
        if request.method == "DELETE":
            del self.org.jobs[name]
            return Response(status_code=204)
        if request.method == "PATCH":
            job["state"] = "Aborted"
        else:
            self._advance(job)
        told = {"id": name, "state": job["state"], "numberRecordsProcessed": len(job.get("rows", ()))}
        told |= {"errorMessage": job["error"]} if "error" in job else {}
        return JSONResponse(told, headers=self._headers())

    def _advance(self, job: dict[str, Any]) -> None:
        job["polls"] += 1
        if job["polls"] <= self.org.troubles.polls:
            job["state"] = "InProgress"
        elif self.org.troubles.fails_as:
            job |= {"state": "Failed", "error": self.org.troubles.fails_as}
        elif "rows" not in job:
            select = parse(job["wish"]["query"])
            try:
                rows = self.org.matching(select, with_deleted=job["wish"]["operation"] == "queryAll")
                job |= {"state": "JobComplete", "rows": rows, "select": select}
            except RefusedError as error:
                job |= {"state": "Failed", "error": f"InvalidBatch : Failed to process query: {error.code}: {error}"}

    async def results(self, request: Request) -> Response:
        self.org.asked.append(("GET", f"results {request.query_params.get('locator', '')}"))
        if problem := self._trouble(request):
            return problem
        job, start = self.org.jobs[request.path_params["job"]], int(request.query_params.get("locator", "0"))
        end = min(start + int(request.query_params["maxRecords"]), len(job["rows"]))
        is_last = end == len(job["rows"]) or self.org.troubles.forgets_chunks
        counts = {"Sforce-Locator": "null" if is_last else str(end), "Sforce-NumberOfRecords": str(end - start)}
        if self.org.troubles.bare_results:
            self.org.troubles.bare_results -= 1
            return Response("", media_type="text/csv")
        headers = self._headers() | counts
        cut = self.org.troubles.cut_after.pop(0) if self.org.troubles.cut_after else 0
        lost = self.org.troubles.lost_rows.pop(0) if self.org.troubles.lost_rows else 0
        lines = self.csv_lines(job, start, end - lost)
        if self.org.troubles.sends_at_once:
            return Response("".join(lines), media_type="text/csv", headers=headers)
        pieces = _pieces(lines, cut)
        if "gzip" in request.headers.get("Accept-Encoding", "") and not cut:
            return StreamingResponse(_packed(pieces), media_type="text/csv", headers=headers | {"Content-Encoding": "gzip"})
        return StreamingResponse(pieces, media_type="text/csv", headers=headers)

    def csv_lines(self, job: dict[str, Any], start: int, end: int) -> Iterator[str]:
        select, org = job["select"], self.org
        one = org.object(select.source)
        yield ",".join(f'"{path}"' for path in select.fields) + "\n"
        kinds = one.all_fields()
        for record in job["rows"][start:end]:
            yield ",".join(csv_cell(org.get(one, record, path), kinds.get(path, "")) for path in select.fields) + "\n"

    def _data(self, request: Request, asked: str, run: Any) -> Response:
        self.org.asked.append(("GET", asked))
        if problem := self._trouble(request):
            return problem
        try:
            return Response(dumps(run()), media_type="application/json", headers=self._headers())
        except RefusedError as error:
            return self._refusal(401 if error.code == "INVALID_SESSION_ID" else 400, error.code, str(error))

    def _trouble(self, request: Request) -> Response | None:
        org, troubles = self.org, self.org.troubles
        org.data_requests += 1
        troubles.before_page(org.data_requests)
        if org.data_requests in troubles.sessions_end_at:
            org.sessions.clear()
        if org.data_requests in troubles.locators_end_at:
            org.locators.clear()
        if self._denied(request):
            return self._refusal(401, "INVALID_SESSION_ID", "Session expired or invalid")
        if troubles.packed:
            return Response(troubles.packed.pop(0), headers={"content-encoding": "gzip", "content-type": "application/json"})
        if troubles.answers:
            return self._refusal(*troubles.answers.pop(0))
        if org.used >= org.allowed:
            return self._refusal(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")
        org.used += 1
        return None

    def _denied(self, request: Request) -> bool:
        return request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.org.sessions

    def _answer(self, request: Request, content: Any) -> Response:
        refused = self._refused(request, request.url.path.removeprefix(API))
        return refused or JSONResponse(content, headers=self._headers())

    def _refused(self, request: Request, asked: str) -> Response | None:
        self.org.asked.append((request.method, asked))
        if self._denied(request):
            return self._refusal(401, "INVALID_SESSION_ID", "Session expired or invalid")
        self.org.used += 1
        return None

    def _refusal(self, status: int, code: str, message: str) -> Response:
        said = {"Retry-After": self.org.troubles.retry_after, "Location": self.org.troubles.location}
        retry = {name: value for name, value in said.items() if value}
        return JSONResponse([{"message": message, "errorCode": code}], status, headers=retry)

    def _headers(self) -> dict[str, str]:
        return {"Sforce-Limit-Info": f"api-usage={self.org.used}/{self.org.allowed}"}


async def _packed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    async for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


async def _pieces(lines: Iterator[str], cut: int) -> AsyncIterator[bytes]:
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if cut and size > cut:
            yield "".join(held).encode()[: cut or None]
            raise ConnectionResetError("the line breaks")
        if not cut and size > 65_536:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


@contextmanager
def serving(org: Org) -> Iterator[Server]:
    server = Server(org)
    with app_served(server.app) as server.base_url:
        yield server
