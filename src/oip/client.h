// A client of the Open Inference Protocol, with predictions for images.
//
//   oip::Client client(*http, "http://127.0.0.1:8080");
//   TRY(const oip::Predictor predictor, oip::Predictor::open(ctx, client, "digits"));
//   TRY(const oip::Prediction p, predictor.predict(ctx, images, 0));
//   // p.guess.label "7", p.guess.probability 0.98, p.latency
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "net/http.h"
#include "oip/images.h"
#include "oip/infer.h"
#include "oip/metadata.h"

namespace varda::oip {

/// Thread-safe. An error status becomes an error with the server's message: kInvalid (400),
/// kNotFound (404), kExhausted (429), kUnsupported (501), kUnavailable (503, or no connection),
/// kTimeout (504), else kInternal.
class Client {
 public:
  /// `url` is the server's: "http://host:port". `http` outlives the client.
  Client(net::HttpClient& http, std::string url);

  /// Metadata of the model; `version` "" is the active one.
  Result<ModelMetadata> metadata(const Context& ctx, const std::string& model,
                                 const std::string& version = "") const;
  Result<bool> ready(const Context& ctx, const std::string& model) const;
  Result<std::vector<IndexEntry>> index(const Context& ctx) const;
  /// Sends inputs in binary; the request chooses the encoding of outputs.
  Result<InferResponse> infer(const Context& ctx, const std::string& model,
                              const InferRequest& request, const std::string& version = "") const;

 private:
  Result<net::HttpClient::Answer> call(const Context& ctx, net::ClientRequest request) const;
  std::string model_url(const std::string& model, const std::string& version) const;

  net::HttpClient& http_;
  std::string url_;
};

/// The best class of a row of scores.
struct Guess {
  std::size_t index = 0;
  std::string label;       // labels[index], or the index without labels
  double probability = 0;  // the model's score
};
/// `scores` is [N,classes], [N,classes,1,1] or [classes]; FP32 or FP64. kInvalid: another type or
/// shape, or no such row.
Result<Guess> top(const tensor::Tensor& scores, std::size_t row,
                  const std::vector<std::string>& labels);

/// One object that a detector found in an image.
struct Detection {
  Guess guess;
  std::array<float, 4> box{};  // left, top, right, bottom; in pixels if the model returns pixels
};

struct Prediction {
  Guess guess;  // of a detector: the first detection, if any
  std::optional<std::vector<Detection>>
      detections;          // best first; absent: the model returns no boxes
  std::string version;     // model version that answered
  Duration latency{};      // round trip
  codec::Json parameters;  // null: none; joint: `tier`, `hard`, `fallback`
};

/// Sends images to one model. Thread-safe.
class Predictor {
 public:
  /// Reads the model's metadata from the server. kInvalid: the model has several inputs. `client`
  /// outlives the predictor.
  static Result<Predictor> open(const Context& ctx, const Client& client, const std::string& model);

  const ModelMetadata& metadata() const { return metadata_; }
  /// Sends one request for one image, in the model's format. Requests the outputs `labels` and
  /// `scores` if the model has them, else the scores of its first output. A detector also has
  /// `boxes`, and may find nothing. kNotFound: a model without boxes returns no label.
  Result<Prediction> predict(const Context& ctx, const Images& images, std::size_t index) const;

 private:
  Predictor(const Client& client, ModelMetadata metadata)
      : client_(&client), metadata_(std::move(metadata)) {}

  const Client* client_;
  ModelMetadata metadata_;
};

}  // namespace varda::oip
