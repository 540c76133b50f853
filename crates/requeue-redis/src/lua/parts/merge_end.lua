return merge, add_level, need_level
end
