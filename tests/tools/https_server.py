"""Usage: https_server.py FOLDER

Makes a certificate for localhost in FOLDER (cert.pem) with openssl, prints a port, and serves a GGUF file of 1,004 bytes
over HTTPS there. /insecure.gguf redirects to HTTP.
"""
import http.server
import ssl
import subprocess
import sys

folder = sys.argv[1]
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/key.pem",
                "-out", f"{folder}/cert.pem", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost"], check=True, stderr=subprocess.DEVNULL)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"GGUF" + b"x" * 1000
        self.send_response(302 if self.path == "/insecure.gguf" else 200)
        self.send_header("Location", "http://localhost:1/tide.gguf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
