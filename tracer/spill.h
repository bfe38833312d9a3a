// Rows of plain data that may be too many for memory: beyond a limit they go to a file without a
// name in a folder, which the system removes whatever happens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/result.h"

namespace superneurons {

/// Bytes appended and read back from any place. Comes to the disk with the first write.
class ScratchFile {
 public:
  explicit ScratchFile(std::string folder) : folder_(std::move(folder)) {}
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  Status append(const void* data, std::size_t size);
  Status read(std::size_t offset, void* data, std::size_t size) const;
  std::size_t size() const { return size_; }

 private:
  std::string folder_;
  int file_ = -1;
  std::size_t size_ = 0;
};

/// Rows in the order in which they were added, read by position.
template <class Row>
class RowStore {
  static_assert(std::is_trivially_copyable_v<Row>);

 public:
  RowStore(const std::string& folder, std::size_t most_bytes)
      : file_(folder), most_(std::max<std::size_t>(most_bytes / sizeof(Row), 1)) {}

  Status add(const Row& row) {
    recent_.push_back(row);
    if (recent_.size() < most_) return Ok{};
    Status status = file_.append(recent_.data(), recent_.size() * sizeof(Row));
    recent_.clear();
    return status;
  }
  std::size_t size() const { return file_.size() / sizeof(Row) + recent_.size(); }
  /// Rows [first, first + count), which there are.
  Result<std::vector<Row>> read(std::size_t first, std::size_t count) const {
    std::vector<Row> rows(count);
    const std::size_t stored = file_.size() / sizeof(Row);
    const std::size_t from_file = first < stored ? std::min(count, stored - first) : 0;
    if (from_file > 0)
      if (Status status = file_.read(first * sizeof(Row), rows.data(), from_file * sizeof(Row));
          !status)
        return std::move(status.error());
    for (std::size_t i = from_file; i < count; ++i) rows[i] = recent_[first + i - stored];
    return rows;
  }

 private:
  ScratchFile file_;
  std::vector<Row> recent_;
  std::size_t most_;
};

/// Sorts rows by `operator<`, which must be a total order for the result not to depend on the
/// limit. All are added, then finish(), then next() until it says false.
template <class Row>
class ExternalSort {
  static_assert(std::is_trivially_copyable_v<Row>);

 public:
  ExternalSort(std::string folder, std::size_t most_bytes)
      : folder_(std::move(folder)), most_(std::max<std::size_t>(most_bytes / sizeof(Row), 2)) {}

  Status add(const Row& row) {
    rows_.push_back(row);
    return rows_.size() < most_ ? Status(Ok{}) : spill();
  }

  Status finish() {
    if (runs_.empty()) {
      std::sort(rows_.begin(), rows_.end());
      return Ok{};
    }
    if (Status status = spill(); !status) return status;
    rows_ = {};
    piece_ = std::max<std::size_t>(most_ / (2 * runs_.size()), 1);
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (Status status = refill(i); !status) return status;
    return Ok{};
  }

  /// False after the last row.
  Result<bool> next(Row& row) {
    if (runs_.empty()) {
      if (at_ == rows_.size()) return false;
      row = rows_[at_++];
      return true;
    }
    if (heads_.empty()) return false;
    const Head head = heads_.top();
    heads_.pop();
    row = head.row;
    if (Status status = refill(head.run); !status) return std::move(status.error());
    return true;
  }

 private:
  struct Run {
    ScratchFile file;
    std::size_t read = 0;  // rows
    std::vector<Row> piece{};
    std::size_t at = 0;
  };
  struct Head {
    Row row;
    std::size_t run;
    bool operator<(const Head& other) const { return other.row < row; }  // the least on top
  };

  Status spill() {
    if (rows_.empty()) return Ok{};
    std::sort(rows_.begin(), rows_.end());
    runs_.push_back({ScratchFile(folder_)});
    Status status = runs_.back().file.append(rows_.data(), rows_.size() * sizeof(Row));
    rows_.clear();
    return status;
  }

  /// Puts the run's next row among the heads.
  Status refill(std::size_t index) {
    Run& run = runs_[index];
    if (run.at == run.piece.size()) {
      const std::size_t left = run.file.size() / sizeof(Row) - run.read;
      if (left == 0) return Ok{};
      run.piece.resize(std::min(left, piece_));
      if (Status status = run.file.read(run.read * sizeof(Row), run.piece.data(),
                                        run.piece.size() * sizeof(Row));
          !status)
        return status;
      run.read += run.piece.size();
      run.at = 0;
    }
    heads_.push({run.piece[run.at++], index});
    return Ok{};
  }

  std::string folder_;
  std::size_t most_, piece_ = 1, at_ = 0;
  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::priority_queue<Head> heads_;
};

}  // namespace superneurons
