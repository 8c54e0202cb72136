// A client of the Open Inference Protocol, and predictions for images.
//
//   oip::Client client(*http, "http://127.0.0.1:8080");
//   TRY(const oip::Predictor predictor, oip::Predictor::open(ctx, client, "digits"));
//   TRY(const oip::Prediction p, predictor.predict(ctx, images, 0));   // p.label "7", p.probability 0.98, p.latency
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

/// Thread-safe. An answer that is no success becomes an error with the server's own words: kInvalid (400), kNotFound (404),
/// kExhausted (429), kUnsupported (501), kUnavailable (503, or no connection), kTimeout (504), else kInternal.
class Client {
 public:
  /// `url` is the server's: "http://host:port". `http` outlives it.
  Client(net::HttpClient& http, std::string url);

  /// The model's; `version` "" is the active one.
  Result<ModelMetadata> metadata(const Context& ctx, const std::string& model, const std::string& version = "") const;
  Result<bool> ready(const Context& ctx, const std::string& model) const;
  Result<std::vector<IndexEntry>> index(const Context& ctx) const;
  /// Inputs go in binary; outputs come as the request says.
  Result<InferResponse> infer(const Context& ctx, const std::string& model, const InferRequest& request,
                              const std::string& version = "") const;

 private:
  Result<net::HttpClient::Answer> call(const Context& ctx, net::ClientRequest request) const;
  std::string model_url(const std::string& model, const std::string& version) const;

  net::HttpClient& http_;
  std::string url_;
};

/// The best of a row of scores.
struct Guess {
  std::size_t index = 0;
  std::string label;       // labels[index], or the index where there are no labels
  double probability = 0;  // the score as the model gave it
};
/// `scores` is [N,classes], [N,classes,1,1] or [classes]; FP32 or FP64. kInvalid: other types or shapes, or no such row.
Result<Guess> top(const tensor::Tensor& scores, std::size_t row, const std::vector<std::string>& labels);

/// One thing that a detector found in an image.
struct Detection {
  Guess guess;
  std::array<float, 4> box{};  // left, top, right, bottom; in pixels of the image where the model's answer is
};

struct Prediction {
  Guess guess;                                       // of a detector: that of the first detection, if any
  std::optional<std::vector<Detection>> detections;  // of a detector, best first; nothing: the model gives no boxes
  std::string version;                               // of the model that answered
  Duration latency{};                                // of the request, there and back
  codec::Json parameters;                            // of the answer; null: none. A joint service says `tier`, `hard`, `fallback`
};

/// Sends images to one model. Thread-safe.
class Predictor {
 public:
  /// Asks the server what the model takes. kInvalid: it takes several inputs. `client` outlives it.
  static Result<Predictor> open(const Context& ctx, const Client& client, const std::string& model);

  const ModelMetadata& metadata() const { return metadata_; }
  /// One request for one image, as the model takes it. A model that gives `labels` and `scores` itself is asked for these, else for
  /// the scores of its first output. A detector, which gives `boxes` too, may find nothing. kNotFound: a model without boxes gives
  /// no label.
  Result<Prediction> predict(const Context& ctx, const Images& images, std::size_t index) const;

 private:
  Predictor(const Client& client, ModelMetadata metadata) : client_(&client), metadata_(std::move(metadata)) {}

  const Client* client_;
  ModelMetadata metadata_;
};

}  // namespace varda::oip
