"""Lines that hold no secret, as programs, people and tools write them every day: none may change on its way to a sink."""

from __future__ import annotations

import base64
import hashlib
import random
import uuid

WRITTEN = r"""
The password was wrong; please try again.
Enter your password:
Password: ********
Forgot password? Reset it here.
Your token has expired, sign in again.
The secret of a good omelette: fresh eggs, 3 of them.
Secret santa: draw a name.
token: str
token: str | None = None
password: SecretStr
api_key: Optional[str] = None
password = None
password = getpass.getpass("Password: ")
password = input("Password: ")
token = os.environ["GITHUB_TOKEN"]
token = os.getenv("HF_TOKEN", "")
api_key=os.environ.get("OPENAI_API_KEY")
api_key = config.api_key
api_key=settings.openai_api_key
secret = secrets.token_hex(16)
secret = get_secret("database")
token = next(tokens)
token = tokens[0]
token=tokenizer.decode(ids)
tokens = tokenizer("a heron stood in the reeds")
max_tokens=4096
max_tokens: 1024
"max_tokens": 512, "temperature": 0.2
usage: prompt_tokens=1234 completion_tokens=567 total_tokens=1801
token_count = 123456
n_tokens = 8192
pad_token_id=50256
pad_token="<|endoftext|>"
eos_token: "</s>"
bos_token = "<|begin_of_text|>"
unk_token='[UNK]'
sep_token=[SEP]
def authenticate(user: str, password: str) -> bool:
def login(username, password, remember=False):
class TokenBucket:
class SecretManager(Protocol):
if password == confirm_password:
if not token:
return jsonify(token=token)
raise ValueError("password is required")
user.set_password(form.password.data)
hashed_password = bcrypt.hashpw(password, salt)
client = OpenAI(api_key=key)
client = Anthropic(api_key=os.environ["ANTHROPIC_API_KEY"])
export OPENAI_API_KEY=$KEY
export GITHUB_TOKEN="${GITHUB_TOKEN}"
OPENAI_API_KEY=<your key here>
ANTHROPIC_API_KEY=your-key-here
DB_PASSWORD=changeme
PASSWORD=
TOKEN=$(cat token.txt)
GITHUB_TOKEN=xxxxxxxx
API_KEY=YOUR_API_KEY
curl -H "Authorization: Bearer $TOKEN" https://api.example.org/v1/me
curl -H "Authorization: Bearer <token>" https://api.example.org/v1/me
Authorization: required
Use HTTP basic authentication for this endpoint.
basic information-processing theory
The bearer of this letter is a friend.
docker run -u 1000:1000 --rm alpine id
chown -R www-data:www-data /var/www
mysql --user=root --password app
pg_dump --no-password --host db app
gh auth login --with-token
--token TOKEN  the token to use
--password PASSWORD  the password to use
--api-key KEY
?page=2&sort=name&order=asc
https://example.org/search?q=herons&key=name
https://example.org/reset?step=2
https://user@example.org/repo.git
ssh://git@example.org:2222/a/b.git
postgresql://localhost:5432/app
redis://cache:6379/0
http://127.0.0.1:8000/v1/chat/completions
s3://bucket/path/to/object.parquet
git@github.com:owner/name.git
file:///usr/share/doc/python3/README.txt
mailto:heron@example.org
10:15:32 INFO  worker-3 finished task 4821 in 1.27 s
2026-08-06T10:15:32.123456Z
2026-08-06 10:15:32,123 WARNING pinfold.app: no checkpoint of 7
192.168.0.1 - - [06/Aug/2026:10:15:32 +0000] "GET /index.html HTTP/1.1" 200 2326
Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0
commit 206f749a0c3b1de25d9f3a1a7b8c9d0e1f2a3b4c
index 3f2a1b4..9c8d7e6 100644
@@ -12,7 +12,9 @@ def main() -> None:
+    parser.add_argument("--token", help="what to send")
-        self.password = password
Merge pull request #1234 from owner/sk-learn-update
sk-container-id-1 div.sk-estimator-doc-link
<div class="sk-toggleable__content fitted"><pre>LinearRegression()</pre></div>
sk-fading-circle sk-circle sk-cube-grid
risk-adjusted-returns-2024-2025-quarterly
task-0123456789-abcdefghij-queue
disk-encryption-at-rest-0123456789
mask-rcnn-resnet50-fpn-coco-v2-0123456789
hf_hub_download(repo_id="gpt2", filename="config.json")
npm_config_registry=https://registry.npmjs.org/
npm_lifecycle_event=test
key-value store
primary_key=True
foreign_key: users.id
sort_key = "created_at"
public_key = load_pem_public_key(data)
cache-key: linux-py311-a1b2c3d4
key: value
"key": "value1234567"
keyboard = "qwerty12345"
monkey=capuchin123
hotkey: ctrl+shift+p
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxJ5z1h1v6v1q8oJw1H3Hq0m7F6jz5m3v0N9y2u heron@host
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
-----END PUBLIC KEY-----
SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDBZNTuvqEtcN0hVRo
sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==
integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
Content-Type: application/json; charset=utf-8
Cookie consent banner
Set cookie flags to Secure and HttpOnly.
a cookie: flour, sugar, butter
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
SELECT id, password_hash FROM users WHERE token IS NOT NULL;
CREATE TABLE tokens (id INTEGER PRIMARY KEY, token TEXT NOT NULL);
UPDATE users SET password_changed_at = now();
{"type": "object", "properties": {"password": {"type": "string"}}}
{"name": "token", "in": "header", "required": true}
"password": "string"
"secret": null, "token": false
secretName: tls
secretRef: {name: app}
imagePullSecrets: []
<input type="password" name="password" autocomplete="off">
<label for="token">Token</label>
.password-field { color: red; }
const token = await getToken();
const { token, secret } = props;
let password = String::new();
String password = scanner.nextLine();
var apiKey = builder.Configuration["ApiKey"];
func (t *Token) String() string {
fn parse_token(input: &str) -> Token {
token := r.Header.Get("X-Token")
pwd
pwd: /home/heron/work
PWD=/home/heron
cd "$PWD" && ls
x = [1, 2, 3]; y = {"a": 1}
for i in range(10): print(i)
import numpy as np; np.random.seed(42)
df.groupby("species")["weight"].mean()
   species  count      mean       std
0   Adelie    152  38.79139  2.663405
array([0.12345678, 0.87654321, 1.23456789])
tensor([[ 0.0123, -0.4567], [ 1.2345,  6.7890]])
RMSE: 0.123456789 (epoch 12/100, lr=1e-4)
Traceback (most recent call last):
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
KeyError: 'token'
ValueError: invalid literal for int() with base 10: 'abc'
pip install numpy==2.1.0 pandas>=2.2 'scipy<2'
requests==2.32.3 --hash=sha256:70761cfe03c773ceb22aa2f671b4757976145175cdfca038c02654d061d6dcc6
uv pip install --only-binary :all: duckdb
apt-get install -y --no-install-recommends ripgrep
ISBN 978-3-16-148410-0
+49 30 123456, call before 5
4111-1111 is not a whole card number
GB29 NWBK 6016 1331 9268 19
E = mc^2; a^2 + b^2 = c^2
The quick brown fox jumps over the lazy dog 1234567890 times.
Lorem ipsum dolor sit amet, consectetur adipiscing elit
ok 12 - the session token is renewed
PASS tests/login.test.ts (5.123 s)
pass: 1234567 fail: 0
bypass = detector123
compass: north1234567
passed=12 failed=0 skipped=3
passengers = 1309
passage: "Call me Ishmael"
author=heron&year=2024
signature = inspect.signature(function)
def sign(message: bytes, signature: bytes) -> None:
authority: example.org:443
oauth2-proxy v7.6.0
xoxo, grandma
AKIA is how such an id begins
ghp_ and gho_ are beginnings of tokens
eyJ is how an encoded object begins
SK Telecom, LG U+ and KT
SG.Hornets 3 : 2 FC.Reeds
the model is gpt-4o-2024-08-06 or claude-sonnet-4-5-20250929
meta-llama/Llama-3.1-8B-Instruct, Qwen/Qwen2.5-Coder-7B
/nix/store/5lvz1x8g3k2jq0p9w7r6y4h3n2m1b0c9-python3-3.11.9/bin/python3
C:\Users\heron\AppData\Local\Temp\tmp1234567890.txt
/var/lib/docker/overlay2/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9/merged
arn:aws:s3:::bucket-name/prefix/*
projects/herons-123456/locations/europe-west1
0x7ffd5e3c8b40 0xdeadbeefcafebabe
1e-10, 6.02214076e23, NaN, -inf
"""
_LINES = tuple(line for line in WRITTEN.strip("\n").split("\n") if line)


def ordinary(seed: int = 11) -> tuple[str, ...]:
    """Those lines, and as much again of what is random and yet no secret."""
    dice = random.Random(seed)
    made: list[str] = []
    for number in range(20):
        data = dice.randbytes(48)
        made += [
            hashlib.sha256(data).hexdigest(),
            hashlib.sha1(data).hexdigest() + f"  file-{number}.txt",
            hashlib.md5(data).hexdigest(),
            str(uuid.UUID(bytes=data[:16], version=4)),
            base64.b64encode(data).decode(),
            base64.urlsafe_b64encode(data).decode(),
            f"blob sha256:{hashlib.sha256(data).hexdigest()} {dice.random():.12f} {dice.getrandbits(60)}",
        ]
    return (*_LINES, *made)
