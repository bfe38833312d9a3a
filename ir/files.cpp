#include "ir/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>

namespace superneurons {
namespace {

constexpr std::size_t kChunk = 1U << 18;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Error io_error(const std::string& path, const std::string& what) {
  return {ErrorCode::io, what + ": " + std::strerror(errno), path};
}

using LineFunction = std::function<Status(std::string_view text, std::int64_t number)>;

/// Cuts a stream of chunks into lines. Only a line that spans chunks is copied, and never more of
/// it than kLongestLine.
class LineSplitter {
 public:
  LineSplitter(const std::string& name, const LineFunction& line) : name_(name), line_(line) {}

  Status add(std::string_view chunk) {
    while (!chunk.empty()) {
      const auto newline = chunk.find('\n');
      const std::string_view part = chunk.substr(0, newline);
      if (pending_.size() + part.size() > kLongestLine)
        return Error{ErrorCode::bad_input,
                     "a line is longer than " + format_bytes({kLongestLine}) +
                         " (would be one record per line)",
                     name_, number_ + 1};
      if (newline == std::string_view::npos) {
        pending_ += part;
        return Ok{};
      }
      Status status = pending_.empty() ? emit(part) : emit(pending_ += part);
      if (!status) return status;
      pending_.clear();
      chunk.remove_prefix(newline + 1);
    }
    return Ok{};
  }
  /// The last line may lack its newline.
  Status finish() { return pending_.empty() ? Status(Ok{}) : emit(pending_); }
  std::int64_t whole_lines() const { return number_; }

 private:
  Status emit(std::string_view text) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    return line_(text, ++number_);
  }

  const std::string& name_;
  const LineFunction& line_;
  std::string pending_;
  std::int64_t number_ = 0;
};

using ChunkFunction = std::function<Status(std::string_view chunk)>;

/// Inflates a gzip file of one or more members. Written over inflate() rather than gzread(), which
/// drops what it had decoded when it meets damage.
class Inflater {
 public:
  Inflater() { ok_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Gives what `data` holds to `chunk`.
  Status add(std::string_view data, const ChunkFunction& chunk) {
    if (!ok_) return Error{ErrorCode::io, "zlib has no memory"};
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    do {
      if (at_member_end_) {
        if (stream_.avail_in == 0 || *stream_.next_in != 0x1f) return Ok{};  // the end, or padding
        inflateReset(&stream_);
        at_member_end_ = false;
      }
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      const int code = inflate(&stream_, Z_NO_FLUSH);
      Status status = chunk({out_.data(), out_.size() - stream_.avail_out});
      if (!status) return status;
      at_member_end_ = code == Z_STREAM_END;
      if (code == Z_BUF_ERROR) return Ok{};  // wants more input
      if (code != Z_OK && code != Z_STREAM_END)
        return Error{ErrorCode::bad_input, std::string("the gzip stream is damaged: ") +
                                               (stream_.msg ? stream_.msg : "no reason given")};
    } while (stream_.avail_in > 0 || stream_.avail_out == 0);
    return Ok{};
  }
  bool complete() const { return at_member_end_; }

 private:
  z_stream stream_{};
  std::vector<char> out_ = std::vector<char>(kChunk);
  bool ok_ = false, at_member_end_ = false;
};

bool names_gzip(const std::string& path) { return path.ends_with(".gz"); }

/// The bytes of a plain or gzipped file.
Status for_each_chunk(const std::string& path, const ChunkFunction& chunk) {
  const File file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) return io_error(path, "cannot be opened");
  std::unique_ptr<Inflater> inflater;
  std::vector<char> buffer(kChunk);
  bool first = true;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    const std::string_view data(buffer.data(), size);
    if (first && data.starts_with("\x1f\x8b")) inflater = std::make_unique<Inflater>();
    else if (first && names_gzip(path))
      return Error{ErrorCode::bad_input, "is not gzip (would be, by its name)", path};
    first = false;
    Status status = inflater ? inflater->add(data, chunk) : chunk(data);
    if (status) continue;
    if (status.error().file.empty()) status.error().file = path;
    return status;
  }
  if (std::ferror(file.get())) return io_error(path, "cannot be read");
  if (inflater && !inflater->complete())
    return Error{ErrorCode::bad_input, "the gzip stream is cut off", path};
  return Ok{};
}

Result<std::string> gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    return Error{ErrorCode::io, "zlib has no memory"};
  std::string out;
  std::vector<char> buffer(kChunk);
  int code = Z_OK;
  while (code == Z_OK) {
    // avail_in has 32 bits: longer texts go in pieces.
    const auto piece = std::min<std::size_t>(text.size(), 1U << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = deflate(&stream, piece == text.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
    text.remove_prefix(piece - stream.avail_in);
  }
  deflateEnd(&stream);
  if (code != Z_STREAM_END) return Error{ErrorCode::io, "compression failed"};
  return out;
}

/// Writes all of `text`; false with errno set otherwise.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

Status write_directly(const std::string& path, int file, std::string_view text) {
  if (file < 0 || !write_all(file, text)) return io_error(path, "cannot be written");
  if (file != STDOUT_FILENO && ::close(file) != 0) return io_error(path, "cannot be written");
  return Ok{};
}

/// Holds off what would end the program while a temporary file exists.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

/// Opens a new file beside `path`.
int open_beside(const std::string& path, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    name = path + ".part-" + std::to_string(::getpid()) + '-' + std::to_string(attempt);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

}  // namespace

Status for_each_line(const std::string& path, const LineFunction& line) {
  LineSplitter lines(path, line);
  bool refused = false;
  Status status = for_each_chunk(path, [&](std::string_view chunk) {
    Status one = lines.add(chunk);
    refused = !one;
    return one;
  });
  if (status) return lines.finish();
  if (refused || status.error().code == ErrorCode::io) return status;
  status.error().line = lines.whole_lines();
  status.error().message += lines.whole_lines() > 0
                                ? "; its last whole line is " + std::to_string(lines.whole_lines())
                                : "; it holds no whole line";
  return status;
}

Status for_each_line_of(std::string_view text, const std::string& name, const LineFunction& line) {
  LineSplitter lines(name, line);
  Status status = lines.add(text);
  return status ? lines.finish() : status;
}

std::string followed(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; links < 40 && std::filesystem::is_symlink(at, error); ++links) {
    const std::filesystem::path to = std::filesystem::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / to;  // `to` alone where it is absolute
  }
  return at.string();
}

Status write_file(const std::string& path, std::string_view text) {
  std::string compressed;
  if (names_gzip(path)) {
    Result<std::string> result = gzip(text);
    if (!result) return std::move(result.error());
    text = compressed = *std::move(result);
  }
  struct stat existing {};
  if (path == "-") return write_directly(path, STDOUT_FILENO, text);
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode))
    return write_directly(path, ::open(path.c_str(), O_WRONLY | O_CLOEXEC), text);
  std::string part;
  const std::string target = followed(path);
  const SignalsHeld held;
  const int file = open_beside(target, part);
  if (file < 0) return io_error(path, "cannot be written");
  const bool written = write_all(file, text);
  int problem = errno;
  const bool closed = ::close(file) == 0;
  if (written && !closed) problem = errno;
  if (written && closed && ::rename(part.c_str(), target.c_str()) == 0) return Ok{};
  if (written && closed) problem = errno;
  ::unlink(part.c_str());
  errno = problem;
  return io_error(path, "cannot be written");
}

Result<std::string> read_file(const std::string& path) {
  std::string text;
  Status status = for_each_chunk(path, [&](std::string_view chunk) -> Status {
    text += chunk;
    return Ok{};
  });
  if (!status) return std::move(status.error());
  return text;
}

}  // namespace superneurons
