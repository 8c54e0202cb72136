// Downloads over HTTP and S3, and the file server: untrusted headers on both sides.
//
// Input, by its first byte:
//   d      Retry-After and Date, one per line
//   f      a request to the file server: target, then "Name: value" lines
//   h, s   a download from an http or s3 URL: answers, one per line, in Script's format
//
// Times stay within bounds. The file server gives only files below its root, with exactly the
// announced bytes. A download returns the bytes that it hashes and keeps, and resumes where it
// stopped.
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "artifact/file_server.h"
#include "artifact/internal/http_date.h"
#include "artifact/internal/source.h"
#include "base/check.h"
#include "input.h"
#include "net/url.h"
#include "os/testing/memory_file_system.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

constexpr const char* kSecret = "outside of the root";

std::string content(std::size_t size) {
  std::string out;
  while (out.size() < size) out += std::to_string(out.size()) + " ";
  out.resize(size);
  return out;
}

void check_dates(fuzz::Input& input) {
  const std::string retry(input.line()), date(input.line());
  for (const std::string& text : {retry, date}) {
    const auto time = artifact::parse_http_date(text);
    if (!time) continue;
    const std::string again = artifact::write_http_date(*time);
    CHECK(again.size() == 29 && artifact::parse_http_date(again) == time);
  }
  const auto after = artifact::retry_after_of(net::Headers{{"Retry-After", retry}, {"Date", date}});
  if (after) CHECK(after->count() >= 0 && *after <= std::chrono::hours(1));
}

const std::map<std::string, std::string>& files() {
  static const std::map<std::string, std::string> files{
      {"a.tar.gz", content(700'000)}, {"sub/b c", content(100)}, {"empty", ""}};
  return files;
}

os::testing::MemoryFileSystem& disk() {
  static os::testing::MemoryFileSystem fs;
  static const bool made = [] {
    CHECK(fs.make_directories("/root/sub", 0755).ok());
    for (const auto& [path, bytes] : files())
      CHECK(os::write_file_atomically(fs, os::Path("/root") / path, bytes).ok());
    CHECK(os::write_file_atomically(fs, "/secret", kSecret).ok());
    const std::map<std::string, std::string> links{{"up", ".."},
                                                   {"out", "/secret"},
                                                   {"far", "sub/../../secret"},
                                                   {"in", "sub/b c"},
                                                   {"loop", "loop"}};
    for (const auto& [name, target] : links)
      CHECK(fs.symlink(target, os::Path("/root") / name).ok());
    return true;
  }();
  CHECK(made);
  return fs;
}

void serve(fuzz::Input& input) {
  net::Request request;
  request.target = input.line();
  if (input.rest().starts_with("HEAD\n")) request.method = input.line();
  while (!input.rest().empty()) {
    const std::string name(input.until(':')), value(input.line());
    request.headers.add(name, value.starts_with(' ') ? value.substr(1) : value);
  }
  net::Response response = artifact::serve_file(disk(), "/root", request);
  std::string body = response.body;
  while (response.stream) {
    const auto piece = response.stream->read();
    if (!piece) break;
    CHECK(!piece->empty());
    body += *piece;
  }
  CHECK(body.find(kSecret) == std::string::npos);
  const auto header = [&](const char* name) {
    return std::string(response.headers.find(name).value_or(""));
  };
  if (response.status >= 400 || response.status == 304) {
    CHECK(body.size() < 100);
    return;
  }
  CHECK(response.status == 200 || response.status == 206);
  if (request.method == "HEAD") {
    CHECK(body.empty());
    return;
  }
  CHECK(header("Content-Length") == std::to_string(body.size()));
  std::size_t first = 0, last = 0, total = body.size();
  if (response.status == 206) {
    CHECK(std::sscanf(header("Content-Range").c_str(), "bytes %zu-%zu/%zu", &first, &last,
                      &total) == 3);
    CHECK(last - first + 1 == body.size() && last < total);
  }
  // The size identifies the file.
  std::size_t found = 0;
  for (const auto& [path, bytes] : files()) {
    if (bytes.size() != total) continue;
    ++found;
    CHECK(body == std::string_view(bytes).substr(first, body.size()));
  }
  CHECK(found == 1);
}

class Pieces final : public net::BodyReader {
 public:
  Pieces(std::string body, std::size_t piece, bool breaks)
      : body_(std::move(body)), piece_(piece), breaks_(breaks) {}
  Result<std::optional<std::string>> read() override {
    if (body_.empty() && breaks_) return Error(Code::kUnavailable, "the connection broke");
    if (body_.empty()) return std::optional<std::string>();
    std::string out = body_.substr(0, piece_);
    body_.erase(0, piece_);
    return std::optional(std::move(out));
  }

 private:
  std::string body_;
  const std::size_t piece_;
  const bool breaks_;
};

/// A file server that answers from the input, one line per answer: "STATUS BYTES HEADERS|BODY".
/// HEADERS are NAME=VALUE separated by ';'; "{first}" in a value is the first requested byte. The
/// body is BODY, or BYTES bytes of the file from there on. Negative BYTES: the connection breaks
/// after them.
class Script final : public net::HttpClient {
 public:
  Script(fuzz::Input& input, std::string host) : input_(input), host_(std::move(host)) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest request) override {
    const auto url = net::Url::parse(request.url);
    CHECK(url.ok() && url->host == host_);  // its credentials go nowhere else
    ++requests;
    first = 0;
    if (const auto range = request.headers.find("Range"))
      CHECK(std::sscanf(std::string(*range).c_str(), "bytes=%zu-", &first) == 1);
    if (input_.rest().empty()) return Error(Code::kUnavailable, "no route");
    net::ClientResponse out;
    out.status = std::atoi(std::string(input_.until(' ')).c_str());
    const int bytes =
        std::clamp(std::atoi(std::string(input_.until(' ')).c_str()), -20'000, 20'000);
    std::string_view answer = input_.line();
    const std::size_t bar = answer.find('|');
    fuzz::Input headers(reinterpret_cast<const std::uint8_t*>(answer.data()),
                        std::min(bar, answer.size()));
    while (!headers.rest().empty()) {
      const std::string name(headers.until('='));
      std::string value(headers.until(';'));
      for (std::size_t at; (at = value.find("{first}")) != std::string::npos;)
        value.replace(at, 7, std::to_string(first));
      out.headers.add(name, value);
    }
    std::string body(bar == std::string_view::npos ? "" : answer.substr(bar + 1));
    const auto& file = files().at("a.tar.gz");
    if (body.empty())
      body = file.substr(std::min(first, file.size()), static_cast<std::size_t>(std::abs(bytes)));
    out.body = std::make_unique<Pieces>(std::move(body), 3000, bytes < 0);
    return out;
  }
  int requests = 0;
  std::size_t first = 0;

 private:
  fuzz::Input& input_;
  const std::string host_;
};

void download(fuzz::Input& input, bool s3) {
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories("/scratch", 0755).ok());
  const artifact::Credentials credentials{.username = "user",
                                          .password = "word",
                                          .token = "",
                                          .access_key_id = "AKIA",
                                          .secret_access_key = "wJalrXUtnFEMI/K7MDENG",
                                          .session_token = "",
                                          .region = "eu-west-1",
                                          .endpoint = "https://files.example",
                                          .ca_pem = ""};
  Script script(input, "files.example");
  std::string got;
  for (int attempt = 0; attempt < 3; ++attempt) {
    artifact::SourceOptions options;
    options.url = options.request.url =
        s3 ? "s3://bucket/a.tar.gz" : "https://files.example/a.tar.gz";
    options.spool = "/scratch/a.part";
    options.limits.archive_bytes_max = 100'000;
    options.credentials = &credentials;
    const Context ctx;
    auto source = artifact::open_source(ctx, fs, script, options);
    CHECK(source.ok());
    got.clear();
    std::optional<artifact::Failure> failure;
    while (true) {
      const int before = script.requests;
      auto piece = (*source)->next();
      // A resumed download continues with the bytes on the disk.
      if (script.requests > before) CHECK(script.first == got.size());
      if (!piece.ok()) {
        failure = piece.error();
        break;
      }
      if (piece->empty()) break;
      got += *piece;
      CHECK((*source)->bytes() == got.size());
      CHECK(got.size() <= options.limits.archive_bytes_max);
    }
    if (failure) {
      CHECK(!failure->error.message().empty());
      CHECK(failure->retry_after.count() >= 0 && failure->retry_after <= std::chrono::hours(1));
      CHECK(failure->error.message().find(credentials.secret_access_key) == std::string::npos);
    } else {
      CHECK((*source)->digest() == codec::Sha256::of(got));
      CHECK(os::read_file(fs, "/scratch/a.part").value() == got);
    }
    const bool stale = (*source)->stale();
    source.value().reset();
    if (!failure) break;
    if (stale) CHECK(artifact::drop_spool(fs, "/scratch/a.part").ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t kind = input.byte();
  if (kind == 'd') check_dates(input);
  if (kind == 'f') serve(input);
  if (kind == 'h' || kind == 's') download(input, kind == 's');
  return 0;
}
