// The part of the API that takes files: PUT and HEAD /v1/artifacts/NAME.

#include <utility>

#include "agent/workers/answers.h"
#include "agent/workers/api.h"
#include "base/text.h"
#include "registry/request.h"

namespace varda::agent::workers {
namespace {

using codec::Json;
using net::Request;
using net::Response;

constexpr std::string_view kArtifactPaths = "/v1/artifacts/";

ArtifactOwner owner_of(const Manager::Caller& caller) {
  return {caller.name.key(), caller.uid, caller.upload_bytes_max};
}

Response artifact_response(int status, const Artifact& artifact) {
  return json_response(status, Json::object({{"item", "artifacts/" + artifact.name},
                                             {"durable", true},
                                             {"sha256", artifact.sha256.hex()},
                                             {"bytes", artifact.bytes}}));
}

std::string check_artifact_name(const std::string& name) {
  return check_result_name(name).empty() ? ""
                                         : "the name of an artifact must have 1 to 63 letters, "
                                           "digits, '.', '_' and '-', and begin with a letter or "
                                           "a digit";
}

/// The piece that a PUT announces. kUnsupported: no length.
Result<ArtifactPiece> announced_piece(const Request& head, const std::string& name) {
  const auto length =
      parse_integer<std::uint64_t>(head.headers.find("Content-Length").value_or(""));
  if (!length) return Error(Code::kUnsupported, "a file needs Content-Length");
  const auto range = head.headers.find("Content-Range");
  if (!range) return ArtifactPiece{.name = name, .first = 0, .length = *length, .total = *length};
  TRY(const registry::ContentRange parsed, registry::parse_content_range(*range));
  if (parsed.length != *length)
    return Error(Code::kInvalid, "Content-Range has " + std::to_string(parsed.length) +
                                     " bytes, but the body has " + std::to_string(*length));
  return ArtifactPiece{
      .name = name, .first = parsed.first, .length = parsed.length, .total = parsed.total};
}

}  // namespace

/// Writes the body of one piece.
class Api::Receiver final : public net::BodyReceiver {
 public:
  Receiver(Api& api, ArtifactOwner owner, std::string name,
           std::unique_ptr<ArtifactStore::Upload> upload)
      : api_(api), owner_(std::move(owner)), name_(std::move(name)), upload_(std::move(upload)) {}

  std::optional<Response> write(std::string_view bytes) override {
    const Status written = upload_->write(bytes);
    if (written.ok()) return std::nullopt;
    Response response = api_.refuse_artifact(written.error(), owner_, name_);
    api_.count("artifacts", response.status);
    return response;
  }
  void finish(net::Responder respond) override {
    api_.pool_.wrap([&api = api_, owner = owner_, name = name_, upload = upload_](const Request&) {
      Response response = api.finish(*upload, owner, name);
      api.count("artifacts", response.status);
      return response;
    })(Request(), std::move(respond));
  }

 private:
  Api& api_;
  const ArtifactOwner owner_;
  const std::string name_;
  const std::shared_ptr<ArtifactStore::Upload> upload_;
};

/// Compares the body with an accepted artifact: a worker that lost the answer sends the file again.
class Api::Comparison final : public net::BodyReceiver {
 public:
  Comparison(Api& api, Artifact artifact, bool whole)
      : api_(api), artifact_(std::move(artifact)), whole_(whole) {}

  std::optional<Response> write(std::string_view bytes) override {
    if (whole_) hash_.update(bytes);
    return std::nullopt;
  }
  void finish(net::Responder respond) override {
    const bool same = !whole_ || hash_.finish() == artifact_.sha256;
    Response response =
        same ? artifact_response(200, artifact_)
             : problem(409, "Conflict",
                       "artifact " + artifact_.name +
                           " is accepted already, with other bytes; use another name");
    api_.count("artifacts", response.status);
    respond(std::move(response));
  }

 private:
  Api& api_;
  const Artifact artifact_;
  const bool whole_;
  codec::Sha256Stream hash_;
};

/// Drops the body of a refused file, then answers: many clients cannot read an answer before they
/// have sent the body.
class Api::Refusal final : public net::BodyReceiver {
 public:
  explicit Refusal(Response response) : response_(std::move(response)) {}
  std::optional<Response> write(std::string_view) override { return std::nullopt; }
  void finish(net::Responder respond) override { respond(std::move(response_)); }

 private:
  Response response_;
};

net::Reception Api::receive(const Request& head) {
  if (head.method != "PUT" || !head.path().starts_with(kArtifactPaths)) return {};
  const auto token = bearer(head);
  const auto caller = token ? manager_.find_by_token(*token) : std::nullopt;
  net::Reception out;
  if (caller) {
    out = receive_from(*caller, head);
    if (out.refusal) log_refusal(caller->name.key(), "artifacts", *out.refusal);
  } else {
    const MutexLock lock(mutex_);
    out.refusal = unauthenticated_.take(clock_.now())
                      ? problem(401, "Unauthorized",
                                "expected Authorization: Bearer TOKEN, with the token in the "
                                "worker's file")
                      : problem(429, "TooManyRequests", "too many requests without a valid token");
  }
  if (out.refusal) count("artifacts", out.refusal->status);
  if (out.refusal && caller && !head.headers.find("Expect")) {
    out.receiver = std::make_unique<Refusal>(std::move(*out.refusal));
    out.refusal.reset();
  }
  return out;
}

net::Reception Api::receive_from(const Manager::Caller& caller, const Request& head) {
  const auto refusal = [](Response response) {
    return net::Reception{.receiver = nullptr, .refusal = std::move(response)};
  };
  if (const auto over = over_limit(caller, /*writes=*/false))
    return refusal(problem(429, "TooManyRequests", over->message()));
  const std::string name(head.path().substr(kArtifactPaths.size()));
  if (const std::string wrong = check_artifact_name(name); !wrong.empty())
    return refusal(problem(400, "BadRequest", wrong));
  if (!head.query().empty())
    return refusal(problem(400, "BadRequest", "this path accepts no parameters"));
  if (options_.artifacts == nullptr)
    return refusal(problem(404, "NotFound", "this agent takes no artifacts"));
  const ArtifactOwner owner = owner_of(caller);
  const auto piece = announced_piece(head, name);
  if (!piece.ok()) return refusal(refuse_artifact(piece.error(), owner, name));
  auto upload = options_.artifacts->begin(owner, *piece);
  if (upload.ok())
    return {.receiver = std::make_unique<Receiver>(*this, owner, name, std::move(*upload)),
            .refusal = std::nullopt};
  const auto accepted = upload.error().code() == Code::kAlreadyExists
                            ? options_.artifacts->find(owner, name)
                            : std::nullopt;
  if (accepted && accepted->bytes == piece->total)
    return {
        .receiver = std::make_unique<Comparison>(*this, *accepted, piece->length == piece->total),
        .refusal = std::nullopt};
  return refusal(refuse_artifact(upload.error(), owner, name));
}

Response Api::finish(ArtifactStore::Upload& upload, const ArtifactOwner& owner,
                     const std::string& name) {
  const auto artifact = upload.finish();
  if (!artifact.ok()) return refuse_artifact(artifact.error(), owner, name);
  if (*artifact) return artifact_response(201, **artifact);
  Response response = acknowledgement("artifacts/" + name, /*durable=*/false);
  response.headers.add("Upload-Offset",
                       std::to_string(options_.artifacts->offset(owner, name).value_or(0)));
  return response;
}

Response Api::refuse_artifact(const Error& error, const ArtifactOwner& owner,
                              const std::string& name) const {
  switch (error.code()) {
    case Code::kUnsupported:
      return problem(411, "LengthRequired", error.message());
    case Code::kAlreadyExists:
      return problem(409, "Conflict", error.message() + ", with other bytes; use another name");
    case Code::kConflict: {
      Response response = problem(409, "Conflict", error.message());
      response.headers.add("Upload-Offset",
                           std::to_string(options_.artifacts->offset(owner, name).value_or(0)));
      return response;
    }
    default:
      return problem(error);
  }
}

Response Api::find_artifact(const Manager::Caller& caller, const std::string& name) const {
  if (options_.artifacts == nullptr) return problem(404, "NotFound", "this agent has no artifacts");
  if (const std::string wrong = check_artifact_name(name); !wrong.empty())
    return problem(400, "BadRequest", wrong);
  const ArtifactOwner owner = owner_of(caller);
  if (const auto accepted = options_.artifacts->find(owner, name))
    return artifact_response(200, *accepted);
  Response response = problem(404, "NotFound", "artifact " + name + " is not accepted yet");
  if (const auto offset = options_.artifacts->offset(owner, name))
    response.headers.add("Upload-Offset", std::to_string(*offset));
  return response;
}

}  // namespace varda::agent::workers
